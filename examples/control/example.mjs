// node example.mjs
import assert from "node:assert";
import { Kohort } from "./kohort-control.mjs";

const kohort = await Kohort.start();
try {
  await kohort.createTopic("orders", 3);
  assert.deepEqual(await kohort.records("orders"), []);
  assert.equal((await kohort.waitStable("billing", { members: 0 })).state, "Dead");
  const fault = await kohort.fault({ action: "fail", api: "OffsetCommit", code: "NOT_COORDINATOR", times: 2 });
  assert.equal((await kohort.faults())[0].id, fault.id);
  await kohort.advance(45);
  await kohort.restart();
  assert.deepEqual(await kohort.requests({ api: "Fetch" }), []);
  await assert.rejects(kohort.evict("billing", { client: "nobody" }), /no member/);
} finally {
  await kohort.stop();
}

const cluster = await Kohort.startCluster(3);
try {
  assert.equal(cluster.bootstrapServers.split(",").length, 3);
  await cluster.createTopic("orders", 3);
  const was = await cluster.coordinatorOf("billing");
  await cluster.kill(was);
  assert.notEqual(await cluster.coordinatorOf("billing"), was);
  await cluster.startBroker(was);
  await cluster.move("orders", 0, was);
  assert.equal(await cluster.leaderOf("orders", 0), was);
  await cluster.pause(was);
  await cluster.resume(was);
  await cluster.partition(was, { store: true });
  await cluster.heal(was);
  assert.equal(await cluster.addBroker(), 4);
  await cluster.stopBroker(4);
  assert.equal((await cluster.cluster()).brokers.filter((broker) => broker.running).length, 3);
  console.log("ok");
} finally {
  await cluster.stop();
}
