// The control port of `kohort serve --control-port 0` for Go: one file, the standard library only.
//
//	kohort, err := Start()                        // needs `kohort` on the path (pip install kohort)
//	defer kohort.Stop()
//	kohort.Post("/topics", M{"name": "orders", "partitions": 3})
//	... your consumers use kohort.BootstrapServers ...
//	kohort.WaitStable("billing", 2)
//	kohort.Advance(45)                            // sessions expire without waiting
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
	fmt.Println("ok")
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
