// franz-go consumers of a soak: they read, note what they did, commit, leave and come back; see tests/soak_worker.py,
// whose arguments and ledger these are.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const lifetimeS = 120

var (
	stopping atomic.Bool
	ledger   *os.File
)

// The monotonic clock that all processes share.
func now() float64 {
	var at syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&at)), 0)
	return float64(at.Sec) + float64(at.Nsec)/1e9
}

func write(row ...any) {
	line, _ := json.Marshal(row)
	ledger.Write(append(line, '\n'))
}

type place struct {
	topic     string
	partition int32
}

// One life of a consumer. Rebalances wait for the poll loop: nothing here is used by two at once.
type life struct {
	name, group string
	client      *kgo.Client
	period      int
	periods     map[place]int
	last        map[place]int64
	uncommitted map[place]kgo.EpochOffset
	committedAt float64
	lock        sync.Mutex
}

func (l *life) got(at place, first, end int64, epoch int32) {
	period, owned := l.periods[at]
	if !owned {
		return
	}
	if before, known := l.last[at]; known && first != before+1 {
		write("V", l.name, fmt.Sprintf("%s %s-%d: %d right after %d", l.group, at.topic, at.partition, first, before))
	}
	l.last[at] = end
	l.uncommitted[at] = kgo.EpochOffset{Epoch: epoch, Offset: end + 1}
	write("R", l.name, l.group, at.topic, at.partition, period, first, end)
}

func (l *life) commit(ctx context.Context, offsets map[place]kgo.EpochOffset) {
	if len(offsets) == 0 {
		return
	}
	wanted := map[string]map[int32]kgo.EpochOffset{}
	for at, offset := range offsets {
		if wanted[at.topic] == nil {
			wanted[at.topic] = map[int32]kgo.EpochOffset{}
		}
		wanted[at.topic][at.partition] = offset
	}
	sent := now()
	failed := map[place]bool{}
	limited, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var wrong error
	l.client.CommitOffsetsSync(limited, wanted, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error) {
		wrong = err
		if response == nil {
			return
		}
		for _, topic := range response.Topics {
			for _, row := range topic.Partitions {
				if row.ErrorCode != 0 {
					failed[place{topic.Topic, row.Partition}] = true
				}
			}
		}
	})
	if wrong != nil {
		return
	}
	l.committedAt = now()
	for at, offset := range offsets {
		if !failed[at] {
			if l.uncommitted[at] == offset {
				delete(l.uncommitted, at)
			}
			write("C", sent, l.committedAt, l.group, at.topic, at.partition, offset.Offset)
		}
	}
}

func (l *life) assigned(_ context.Context, client *kgo.Client, topics map[string][]int32) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.period++
	_, generation := client.GroupMetadata()
	for topic, partitions := range topics {
		for _, partition := range partitions {
			at := place{topic, partition}
			l.periods[at] = l.period
			delete(l.last, at)
			write("A", now(), l.name, l.group, generation, topic, partition, l.period)
		}
	}
}

func (l *life) revoked(ctx context.Context, _ *kgo.Client, topics map[string][]int32) {
	l.lock.Lock()
	defer l.lock.Unlock()
	due := map[place]kgo.EpochOffset{}
	for topic, partitions := range topics {
		for _, partition := range partitions {
			if offset, there := l.uncommitted[place{topic, partition}]; there {
				due[place{topic, partition}] = offset
			}
		}
	}
	l.commit(ctx, due)
	l.forget(topics)
}

func (l *life) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	l.lock.Lock()
	defer l.lock.Unlock()
	l.forget(topics)
}

func (l *life) forget(topics map[string][]int32) {
	for topic, partitions := range topics {
		for _, partition := range partitions {
			at := place{topic, partition}
			delete(l.periods, at)
			delete(l.uncommitted, at)
			delete(l.last, at)
		}
	}
}

func live(servers, group, topic, name string) error {
	l := &life{
		name: name, group: group,
		periods: map[place]int{}, last: map[place]int64{}, uncommitted: map[place]kgo.EpochOffset{}, committedAt: now(),
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.ClientID(name),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(15*time.Second),
		kgo.RebalanceTimeout(60*time.Second),
		kgo.HeartbeatInterval(1500*time.Millisecond),
		kgo.MetadataMinAge(500*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(l.assigned),
		kgo.OnPartitionsRevoked(l.revoked),
		kgo.OnPartitionsLost(l.lost),
	)
	if err != nil {
		return err
	}
	l.client = client
	end := now() + rand.ExpFloat64()*lifetimeS
	for !stopping.Load() && now() < end {
		wait, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		fetches := client.PollFetches(wait)
		cancel()
		l.lock.Lock()
		fetches.EachPartition(func(found kgo.FetchTopicPartition) {
			for _, record := range found.Records {
				l.got(place{found.Topic, found.Partition}, record.Offset, record.Offset, record.LeaderEpoch)
			}
		})
		if len(l.uncommitted) > 0 && now()-l.committedAt > 1 {
			due := map[place]kgo.EpochOffset{}
			for at, offset := range l.uncommitted {
				due[at] = offset
			}
			l.commit(context.Background(), due)
		}
		l.lock.Unlock()
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	return nil
}

func main() {
	options, at := map[string]string{}, 1
	for ; strings.HasPrefix(os.Args[at], "--"); at += 2 {
		options[os.Args[at]] = os.Args[at+1]
	}
	var err error
	if ledger, err = os.OpenFile(options["--ledger"], os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	go func() {
		<-signals
		stopping.Store(true)
	}()
	var all sync.WaitGroup
	for number, consumer := range os.Args[at:] {
		words := strings.Split(consumer, ":")
		name := fmt.Sprintf("%s-%d-go", options["--name"], number)
		all.Add(1)
		go func() {
			defer all.Done()
			for number := 1; !stopping.Load(); number++ {
				named := fmt.Sprintf("%s.%d", name, number)
				if err := live(options["--servers"], words[1], words[2], named); err != nil {
					write("E", named, err.Error())
					time.Sleep(time.Second)
				}
			}
		}()
	}
	all.Wait()
}
