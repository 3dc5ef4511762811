// Calls and answers over one connection of the wire of Xbus, in both directions; see docs/wire.md, "Frames".

import { decode, encode } from "@msgpack/msgpack";
import { Dealer } from "zeromq";

const NO_KEYWORDS = encode({});

/** An error reply, or a call that got no answer. After a passing one the same call may succeed later. */
export class CallError extends Error {
  constructor(cause, code, isPassing) {
    super(cause);
    this.code = code;
    this.isPassing = isPassing;
  }
}

const PAUSE_MS = 100; // until the next of several brokers is tried

// Without "immediate" a call would wait for a connection, and reach the broker much later. A frozen broker is silent.
const OPTIONS = { immediate: true, sendHighWaterMark: 0, linger: 1000, tcpKeepalive: 1, tcpKeepaliveIdle: 5 };
const SEVERAL = { ...OPTIONS, heartbeatInterval: 750, heartbeatTimeout: 2250, handshakeInterval: 1500 };

export class Connection {
  /** @param urls of the broker, or of several of which one leads, with commas between them */
  constructor(urls) {
    this.urls = urls.split(",");
    this.calls = new Map();
    this.nextId = 0;
    this.losses = 0;
    this.channel = null; // by which the other side may call, and what answers it
    this.answer = null;
    this.sent = Promise.resolve();
    this.isClosed = false;
    this.connect();
  }

  connect() {
    const socket = (this.socket = new Dealer(this.urls.length > 1 ? SEVERAL : OPTIONS));
    const lost = () => socket === this.socket && this.lose();
    socket.events.on("disconnect", lost);
    if (this.urls.length > 1) socket.events.on("connect:retry", lost);
    socket.connect(this.urls[0]);
    this.read(socket);
  }

  /** Turn to the next of several brokers: this one is lost, or stands by. */
  turn() {
    if (this.urls.length === 1 || this.isClosed || !this.socket) return;
    this.socket.close();
    this.socket = null;
    this.urls.push(this.urls.shift());
    // Calls that are made meanwhile wait for the next.
    const paused = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
    this.sent = this.sent.then(paused).then(() => this.isClosed || this.connect());
  }

  /** Call a verb; the promise fails with a CallError. */
  call(verb, ...args) {
    const id = this.nextId++;
    const answered = new Promise((resolve, reject) => this.calls.set(id, { resolve, reject }));
    this.send([this.header(id), Buffer.from(verb), encode(args), NO_KEYWORDS]);
    return answered;
  }

  /** Let the other side call by a channel: answer(verb, args) gives a promise of the answer. */
  open(channel, answer) {
    this.channel = channel;
    this.answer = answer;
  }

  close() {
    this.isClosed = true;
    this.socket?.close();
  }

  async read(socket) {
    for await (const frames of socket) {
      if (frames.length === 2) this.take(...frames);
      else if (frames.length === 5) this.takeCall(...frames);
    }
  }

  take(header, data) {
    const call = this.calls.get(header.readUInt32LE(4));
    this.calls.delete(header.readUInt32LE(4));
    if (!call) return;
    const answer = decode(data);
    if (header.readUInt8(16) === 0) return call.resolve(answer);
    const [type, [cause, , code]] = answer;
    const isUnknown = type === "aiozmq.rpc.base.NotFoundError";
    call.reject(new CallError(cause, isUnknown ? "unknown_method" : code, type.endsWith(".Failed")));
    if (code === "not_leading") this.lose();
  }

  async takeCall(channel, header, verb, args) {
    // A call for an older registration: the broker brings its envelope again.
    if (!this.channel?.equals(channel)) return;
    const id = header.readUInt32LE(4);
    let isError = 0;
    const answer = await this.answer(verb.toString(), decode(args)).catch((error) => {
      isError = 1;
      return ["xbus.errors.Failed", [String(error), "", "recipient_failed"], String(error)];
    });
    // Its registration may have ended while the answer was made.
    if (this.channel?.equals(channel)) this.send([channel, this.header(id, isError), encode(answer)]);
  }

  lose() {
    this.channel = null;
    for (const call of this.calls.values()) call.reject(new CallError("the connection was lost", "connection_lost", true));
    this.calls.clear();
    this.losses++;
    this.turn();
  }

  header(id, isError = null) {
    const header = Buffer.alloc(isError === null ? 16 : 17);
    header.writeUInt16LE(process.pid % 65536, 0);
    header.writeUInt32LE(id, 4);
    header.writeDoubleLE(Date.now() / 1000, 8);
    if (isError !== null) header.writeUInt8(isError, 16);
    return header;
  }

  send(frames) {
    const { losses } = this;
    // The socket takes one message at a time. What was meant for a lost connection must not go over the next.
    this.sent = this.sent.then(() => losses === this.losses && this.socket?.send(frames)).catch(() => {});
  }
}
