// A worker or a consumer that the broker calls over the connection that it made; see docs/wire.md, "Calls over
// the connection of a recipient" and "Recipients".

import { randomBytes } from "node:crypto";
import { hostname } from "node:os";

import { decode, decodeMulti, encode } from "@msgpack/msgpack";

import { CallError, Connection } from "./connection.js";

const FINAL = ["login_refused", "displaced", "wrong_kind", "unknown_method"];

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

/** The items of a batch: each is a msgpack bin, whose bytes are the item. */
export function unpack(firstIndex, items, data, indices) {
  const bins = [...decodeMulti(data)];
  if (bins.length !== items) throw new Error("the batch has another number of items");
  return bins.map((bin, k) => ({ indices: indices ? indices[k] : [firstIndex + k], value: decode(bin) }));
}

/** A batch as a worker answers it. */
export function pack(items) {
  const data = Buffer.concat(items.map((item) => encode(encode(item.value))));
  return [items[0].indices[0], items.length, data, items.map((item) => item.indices)];
}

export class Recipient {
  /**
   * @param kind "worker" or "consumer"
   * @param author has items(envelope, items), which gives those that a worker made, commit(envelope) and
   *     rollback(envelope); an envelope is a map of its own.
   */
  constructor(url, login, password, kind, author) {
    Object.assign(this, { login, password, kind, author, token: null, seconds: 5, isStopping: false });
    this.envelopes = new Map();
    this.work = Promise.resolve();
    this.connection = new Connection(url);
    this.started = new Date().toISOString();
  }

  /** Serve until stop(); register again whenever the broker does not know us. */
  async run() {
    while (!this.isStopping) {
      try {
        await this.register();
        console.log(`${this.kind}: registered`);
        while (this.connection.channel && !this.isStopping) {
          await pause(this.seconds);
          const { registered } = await this.connection.call("xbus.heartbeat", this.token, []);
          if (!registered) break;
        }
      } catch (error) {
        if (!(error instanceof CallError) || FINAL.includes(error.code)) throw error;
        if (error.code === "session_unknown") this.token = null;
        await pause(0.5);
      }
    }
  }

  async register() {
    this.token ??= (await this.connection.call("xbus.login", this.login, this.password)).token;
    this.connection.open(null, null);
    await this.work;
    for (const envelopeId of [...this.envelopes.keys()]) this.rollBack(envelopeId);
    const channel = randomBytes(16);
    this.connection.open(channel, (verb, args) => this.answer(verb, args));
    const { heartbeat } = await this.connection.call("xbus.serve", this.token, channel);
    this.seconds = heartbeat || 5;
  }

  /** End what is open, and say farewell. */
  async stop() {
    this.isStopping = true;
    await this.work;
    if (this.token) await this.connection.call("xbus.logout", this.token).catch(() => {});
    this.connection.close();
  }

  answer(verb, args) {
    if (verb === "ping") return Promise.resolve(args[0]);
    // One after the other, in the order in which they came.
    const answered = this.work.then(() => this.carryOut(verb, args));
    this.work = answered.catch(() => {});
    return answered;
  }

  carryOut(verb, [envelopeId, eventId, ...rest]) {
    switch (verb) {
      case "get_metadata":
        return this.metadata();
      case "has_clearing":
      case "has_immediate_reply":
        return [false, null];
      case "start_event":
        this.open(envelopeId);
        return [true, null];
      case "xbus.send_items":
        return [true, this.take(envelopeId, rest)];
      case "xbus.end_event":
        return [true, null, []];
      case "xbus.take_event": {
        // A whole small event in one call.
        this.open(envelopeId);
        const made = rest[1].flatMap((batch) => this.take(envelopeId, batch) ?? []);
        if (rest[2]) this.commit(envelopeId);
        return [true, null, made];
      }
      case "end_envelope":
        this.commit(envelopeId);
        return [true, null];
      case "stop_envelope":
        this.rollBack(envelopeId);
        return true;
    }
    throw new Error(`there is no verb ${verb}`);
  }

  metadata() {
    const xbus = { batches: 1, envelopes: 1, heartbeats: true, kind: this.kind };
    const now = new Date().toISOString();
    const times = { start_date: this.started, local_time: now, host: hostname() };
    return { name: `${this.kind} in JavaScript`, version: 1, api_version: 0.2, ...times, xbus };
  }

  open(envelopeId) {
    if (!this.envelopes.has(envelopeId)) this.envelopes.set(envelopeId, { id: envelopeId });
  }

  take(envelopeId, batch) {
    const made = this.author.items(this.envelopes.get(envelopeId), unpack(...batch));
    return this.kind === "worker" ? (made.length ? [pack(made)] : []) : null;
  }

  commit(envelopeId) {
    this.author.commit(this.envelopes.get(envelopeId));
    this.envelopes.delete(envelopeId);
  }

  rollBack(envelopeId) {
    this.author.rollback(this.envelopes.get(envelopeId) ?? { id: envelopeId });
    this.envelopes.delete(envelopeId);
  }
}

/** Run a recipient as a program, until SIGTERM or SIGINT. */
export async function main(kind, author, login) {
  const [url = "tcp://127.0.0.1:4891", role = login, password = "password"] = process.argv.slice(2);
  const recipient = new Recipient(url, role, password, kind, author);
  for (const signal of ["SIGTERM", "SIGINT"]) process.once(signal, () => recipient.stop().then(() => process.exit(0)));
  await recipient.run().catch((error) => {
    console.error(`${kind}: ${error.message} [${error.code}]`);
    process.exit(1);
  });
}
