// The control port of `kohort serve --control-port 0` for Go: one file, the standard library only.
//
//	kohort, err := Start()                        // needs `kohort` on the path (pip install kohort)
//	defer kohort.Stop()
//	kohort.Post("/topics", M{"name": "orders", "partitions": 3})
//	... your consumers use kohort.BootstrapServers ...
//	kohort.WaitStable("billing", 2)
//	kohort.Advance(45)                            // sessions expire without waiting
//	cluster, err := StartCluster(3)               // several brokers
//	node, err := cluster.CoordinatorOf("billing")
//	cluster.Kill(node)
//
// `go run kohort_control.go` tries it; in a module of your own give it your package's name and leave out main.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// M is a JSON object.
type M = map[string]any

// Kohort is a broker in a process of its own.
type Kohort struct {
	BootstrapServers string
	url              string
	process          *exec.Cmd
}

// Start runs a broker in memory on a free port.
func Start(options ...string) (*Kohort, error) {
	words := []string{"serve", "--memory", "--port", "0", "--control-port", "0", "--log-level", "error",
		"--config", "group.initial.rebalance.delay.ms=0"}
	process := exec.Command("kohort", append(words, options...)...)
	process.Stderr = os.Stderr
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	found := []string{}
	for len(found) < 2 && lines.Scan() {
		_, where, _ := strings.Cut(lines.Text(), " on ")
		found = append(found, where)
	}
	if len(found) < 2 {
		return nil, errors.New("kohort serve did not start")
	}
	return &Kohort{found[0], found[1], process}, nil
}

// StartCluster runs several brokers of one cluster, in one process.
func StartCluster(brokers int, options ...string) (*Kohort, error) {
	return Start(append([]string{"--brokers", fmt.Sprint(brokers)}, options...)...)
}

// Stop ends the broker.
func (k *Kohort) Stop() error {
	if err := k.process.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return k.process.Wait()
}

// Ask sends a request to any path of the control port.
func (k *Kohort) Ask(method, path string, body M) (M, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(method, k.url+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	found := M{}
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		return nil, err
	}
	if answer.StatusCode >= 400 {
		return nil, fmt.Errorf("%v", found["error"])
	}
	return found, nil
}

func (k *Kohort) Get(path string) (M, error)          { return k.Ask("GET", path, M{}) }
func (k *Kohort) Post(path string, body M) (M, error) { return k.Ask("POST", path, body) }
func (k *Kohort) Delete(path string) (M, error)       { return k.Ask("DELETE", path, M{}) }
func (k *Kohort) Records(topic string) (M, error) {
	return k.Get("/topics/" + url.PathEscape(topic) + "/records")
}
func (k *Kohort) Committed(group string) (M, error) {
	return k.Get("/groups/" + url.PathEscape(group) + "/committed")
}
func (k *Kohort) Group(group string) (M, error) { return k.Get("/groups/" + url.PathEscape(group)) }
func (k *Kohort) Story(group string) (M, error) {
	return k.Get("/groups/" + url.PathEscape(group) + "/story")
}
func (k *Kohort) Requests(api string) (M, error) {
	return k.Get("/requests?api=" + url.QueryEscape(api))
}
func (k *Kohort) Advance(seconds float64) (M, error) {
	return k.Post("/clock/advance", M{"seconds": seconds})
}
func (k *Kohort) Restart() (M, error)      { return k.Post("/broker/restart", M{}) }
func (k *Kohort) Fault(fault M) (M, error) { return k.Post("/faults", fault) }
func (k *Kohort) WaitStable(group string, members int) (M, error) {
	return k.Post("/groups/"+url.PathEscape(group)+"/wait-stable", M{"members": members})
}
func (k *Kohort) Evict(group string, whom M) (M, error) {
	return k.Post("/groups/"+url.PathEscape(group)+"/evict", whom)
}

// Of several brokers; each is named by its node id.

func (k *Kohort) CoordinatorOf(group string) (int, error) {
	return nodeId(k.Get("/groups/" + url.PathEscape(group) + "/coordinator"))
}
func (k *Kohort) LeaderOf(topic string, partition int) (int, error) {
	return nodeId(k.Get(fmt.Sprintf("/topics/%s/leader?partition=%d", url.PathEscape(topic), partition)))
}
func (k *Kohort) Kill(node int) (M, error)        { return k.broker(node, "kill", M{}) }
func (k *Kohort) StopBroker(node int) (M, error)  { return k.broker(node, "stop", M{}) }
func (k *Kohort) StartBroker(node int) (M, error) { return k.broker(node, "start", M{}) }
func (k *Kohort) Pause(node int) (M, error)       { return k.broker(node, "pause", M{}) }
func (k *Kohort) Resume(node int) (M, error)      { return k.broker(node, "resume", M{}) }
func (k *Kohort) Heal(node int) (M, error)        { return k.broker(node, "heal", M{}) }
func (k *Kohort) Partition(node int, store, clients bool) (M, error) {
	return k.broker(node, "partition", M{"store": store, "clients": clients})
}
func (k *Kohort) AddBroker() (int, error) { return nodeId(k.Post("/brokers", M{})) }
func (k *Kohort) Move(topic string, partition, to int) (M, error) {
	return k.Post("/cluster/move", M{"topic": topic, "partition": partition, "to": to})
}
func (k *Kohort) broker(node int, action string, body M) (M, error) {
	return k.Post(fmt.Sprintf("/brokers/%d/%s", node, action), body)
}
func nodeId(found M, err error) (int, error) {
	if err != nil {
		return -1, err
	}
	return int(found["node_id"].(float64)), nil
}

func main() {
	kohort, err := Start()
	must(err)
	defer kohort.Stop()
	_, err = kohort.Post("/topics", M{"name": "orders", "partitions": 3})
	must(err)
	records, err := kohort.Records("orders")
	must(err)
	if len(records["records"].([]any)) != 0 {
		panic(records)
	}
	group, err := kohort.WaitStable("billing", 0)
	must(err)
	if group["state"] != "Dead" {
		panic(group)
	}
	_, err = kohort.Advance(45)
	must(err)
	if _, err = kohort.Evict("billing", M{"client": "nobody"}); err == nil || !strings.Contains(err.Error(), "no member") {
		panic(err)
	}
	tryCluster()
	fmt.Println("ok")
}

func tryCluster() {
	cluster, err := StartCluster(3)
	must(err)
	defer cluster.Stop()
	_, err = cluster.Post("/topics", M{"name": "orders", "partitions": 3})
	must(err)
	was, err := cluster.CoordinatorOf("billing")
	must(err)
	_, err = cluster.Kill(was)
	must(err)
	if now, err := cluster.CoordinatorOf("billing"); err != nil || now == was {
		panic(fmt.Sprint(now, err))
	}
	_, err = cluster.StartBroker(was)
	must(err)
	_, err = cluster.Move("orders", 0, was)
	must(err)
	_, err = cluster.Pause(was)
	must(err)
	_, err = cluster.Resume(was)
	must(err)
	_, err = cluster.Partition(was, true, false)
	must(err)
	_, err = cluster.Heal(was)
	must(err)
	added, err := cluster.AddBroker()
	must(err)
	_, err = cluster.StopBroker(added)
	must(err)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
