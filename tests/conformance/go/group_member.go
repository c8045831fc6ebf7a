// A franz-go consumer in a group: prints what it is given, gives up and reads, ends when standard input does.
// Arguments: bootstrap servers, topic, group, "consumer" or "classic".
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func tell(sign string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
		now := time.Now().UnixMilli()
		for _, partitions := range topics {
			for _, partition := range partitions {
				fmt.Printf("%s %d %d\n", sign, partition, now)
			}
		}
	}
}

func main() {
	servers, topic, group, protocol := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	ctx := context.Background()
	if protocol == "consumer" {
		ctx = context.WithValue(ctx, "opt_in_kafka_next_gen_balancer_beta", true)
	}
	client, err := kgo.NewClient(
		kgo.WithContext(ctx),
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.MetadataMaxAge(500*time.Millisecond),
		kgo.FetchMaxWait(200*time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(tell("+")),
		kgo.OnPartitionsRevoked(tell("-")),
		kgo.OnPartitionsLost(tell("-")),
	)
	if err != nil {
		panic(err)
	}
	var ended atomic.Bool
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	for !ended.Load() {
		wait, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(wait)
		cancel()
		fetches.EachRecord(func(record *kgo.Record) { fmt.Printf("R %s\n", record.Value) })
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			fmt.Fprintln(os.Stderr, "commit:", err)
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
}
