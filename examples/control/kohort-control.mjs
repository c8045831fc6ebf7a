// The control port of `kohort serve --control-port 0` for JavaScript and TypeScript: no dependency, Node 18 or newer.
//
//   const kohort = await Kohort.start();          // needs `kohort` on the path (pip install kohort)
//   await kohort.createTopic("orders", 3);
//   ... your consumers use kohort.bootstrapServers ...
//   await kohort.waitStable("billing", { members: 2 });
//   await kohort.advance(45);                     // sessions expire without waiting
//   await kohort.stop();
//
//   const kohort = await Kohort.startCluster(3);  // several brokers
//   await kohort.kill(await kohort.coordinatorOf("billing"));

import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

export class Kohort {
  constructor(url, bootstrapServers, process = null) {
    Object.assign(this, { url, bootstrapServers, process });
  }

  /** A broker in memory on a free port, as a process of its own. */
  static async start(...options) {
    const words = ["serve", "--memory", "--port", "0", "--control-port", "0", "--log-level", "error"];
    const quick = ["--config", "group.initial.rebalance.delay.ms=0"];
    const child = spawn("kohort", [...words, ...quick, ...options], { stdio: ["ignore", "pipe", "inherit"] });
    const found = {};
    for await (const line of createInterface({ input: child.stdout })) {
      const [, what, where] = /^kohort (listening|control) on (.*)$/.exec(line) ?? [];
      if (what) found[what] = where;
      if (found.listening && found.control) return new Kohort(found.control, found.listening, child);
    }
    throw new Error("kohort serve did not start");
  }

  /** Several brokers of one cluster, in one process. */
  static startCluster(brokers = 3, ...options) {
    return Kohort.start("--brokers", String(brokers), ...options);
  }

  async stop() {
    if (!this.process || this.process.exitCode !== null) return;
    const ended = new Promise((resolve) => this.process.once("exit", resolve));
    this.process.kill("SIGTERM");
    await ended;
  }

  async #ask(method, path, body) {
    const answer = await fetch(this.url + path, { method, body: body && JSON.stringify(body) });
    const found = await answer.json();
    if (!answer.ok) throw new Error(found.error);
    return found;
  }

  createTopic(name, partitions = 1, configs = {}) {
    return this.#ask("POST", "/topics", { name, partitions, configs });
  }
  async records(topic) {
    return (await this.#ask("GET", `/topics/${encodeURIComponent(topic)}/records`)).records;
  }
  async committed(group) {
    return (await this.#ask("GET", `/groups/${encodeURIComponent(group)}/committed`)).offsets;
  }
  group(group) {
    return this.#ask("GET", `/groups/${encodeURIComponent(group)}`);
  }
  async story(group) {
    return (await this.#ask("GET", `/groups/${encodeURIComponent(group)}/story`)).events;
  }
  /** wanted: { members, partitions, timeout } */
  waitStable(group, wanted = {}) {
    return this.#ask("POST", `/groups/${encodeURIComponent(group)}/wait-stable`, wanted);
  }
  /** whom: { client } or { member } or { group_instance_id } */
  async evict(group, whom) {
    return (await this.#ask("POST", `/groups/${encodeURIComponent(group)}/evict`, whom)).evicted;
  }
  /** wanted: { api, client } */
  async requests(wanted = {}) {
    return (await this.#ask("GET", `/requests?${new URLSearchParams(wanted)}`)).requests;
  }
  advance(seconds) {
    return this.#ask("POST", "/clock/advance", { seconds });
  }
  /** fault: { action: "fail", api: "OffsetCommit", code: "NOT_COORDINATOR", times: 2, group, client, topic } */
  fault(fault) {
    return this.#ask("POST", "/faults", fault);
  }
  async faults() {
    return (await this.#ask("GET", "/faults")).faults;
  }
  clearFaults() {
    return this.#ask("DELETE", "/faults");
  }
  restart() {
    return this.#ask("POST", "/broker/restart");
  }

  // Of several brokers; each is named by its node id.

  cluster() {
    return this.#ask("GET", "/cluster");
  }
  async coordinatorOf(group) {
    return (await this.#ask("GET", `/groups/${encodeURIComponent(group)}/coordinator`)).node_id;
  }
  async leaderOf(topic, partition) {
    return (await this.#ask("GET", `/topics/${encodeURIComponent(topic)}/leader?partition=${partition}`)).node_id;
  }
  /** As kill -9. */
  kill(node) {
    return this.#ask("POST", `/brokers/${node}/kill`);
  }
  /** Cleanly: what it leads is handed over. */
  stopBroker(node) {
    return this.#ask("POST", `/brokers/${node}/stop`);
  }
  startBroker(node) {
    return this.#ask("POST", `/brokers/${node}/start`);
  }
  pause(node) {
    return this.#ask("POST", `/brokers/${node}/pause`);
  }
  resume(node) {
    return this.#ask("POST", `/brokers/${node}/resume`);
  }
  /** from: { store: true, clients: false } */
  partition(node, from = {}) {
    return this.#ask("POST", `/brokers/${node}/partition`, from);
  }
  heal(node) {
    return this.#ask("POST", `/brokers/${node}/heal`);
  }
  async addBroker() {
    return (await this.#ask("POST", "/brokers")).node_id;
  }
  move(topic, partition, to) {
    return this.#ask("POST", "/cluster/move", { topic, partition, to });
  }
}
