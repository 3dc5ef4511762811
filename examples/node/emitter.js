// An emitter: it sends an envelope with an event of three clients; see docs/wire.md, "Front, added".

import { randomUUID } from "node:crypto";

import { encode } from "@msgpack/msgpack";

import { CallError, Connection } from "./connection.js";

const TRIES = 20;

const [url = "tcp://127.0.0.1:1984", login = "test_emitter", password = "password"] = process.argv.slice(2);
const connection = new Connection(url);

/** Send an envelope of one event, until the front acknowledges it. */
async function put(typeName, values) {
  const envelopeId = randomUUID();
  const data = Buffer.concat(values.map((value) => encode(encode(value))));
  // The same ids and the same content each time: a repeat gets the first receipt.
  const events = [[randomUUID(), typeName, values.length, data]];
  for (let left = TRIES; ; left--) {
    try {
      const { token } = await connection.call("xbus.login", login, password);
      return await connection.call("xbus.put_envelope", token, envelopeId, events);
    } catch (error) {
      if (!(error instanceof CallError && error.isPassing) || left === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
}

try {
  const receipt = await put("test_event", [{ name: "Ada" }, { name: "Grace" }, { name: "Edsger" }]);
  console.log(`sealed at position ${receipt.position}`);
} catch (error) {
  console.error(`emitter: ${error.message} [${error.code}]`);
  process.exitCode = 1;
}
connection.close();
