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
  console.log("ok");
} finally {
  await kohort.stop();
}
