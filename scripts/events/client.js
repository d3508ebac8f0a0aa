#!/usr/bin/env node
// Fires and hears events of a master's bus with an ordinary NATS client:
//
//   client.js DIR fire TAG DATA     stores one event; DATA is JSON
//   client.js DIR listen TAG...     prints events whose tags begin so, a line each
//
// DIR is what salt-event creds has written. It needs the package
// @nats-io/transport-node.
'use strict'
const { randomBytes } = require('node:crypto')
const { readFileSync } = require('node:fs')
const { join } = require('node:path')
const { connect } = require('@nats-io/transport-node')

const [dir, verb, ...words] = process.argv.slice(2)
const creds = JSON.parse(readFileSync(join(dir, 'client.json'), 'utf8'))

// Each connection has an inbox of its own, named by a nonce of 16 to 64 letters
// and digits that nobody can guess; the user of the connection is that nonce.
function dial () {
  const nonce = randomBytes(16).toString('hex')
  return connect({
    servers: creds.url,
    user: nonce,
    inboxPrefix: `${creds.inbox}.${nonce}`,
    noAsyncTraces: true,
    tls: {
      servername: creds.server_name,
      caFile: join(dir, creds.ca),
      certFile: join(dir, creds.cert),
      keyFile: join(dir, creds.key)
    }
  })
}

// check throws what the master has refused.
function check (m) {
  const text = m.headers?.get('Nats-Service-Error')
  if (text) throw new Error(`${m.headers.get('Nats-Service-Error-Code')}: ${text}`)
  return m
}

async function fire (nc, tag, data) {
  const body = { events: [{ tag, data: JSON.parse(data) }] }
  const m = check(await nc.request(creds.subjects.fire, JSON.stringify(body), { timeout: 10000 }))
  console.log(m.json().outcome) // stored
}

async function listen (nc, tags) {
  const answer = `${nc.options.inboxPrefix}.events`
  const events = nc.subscribe(answer)
  nc.publish(creds.subjects.listen, JSON.stringify({ tags }), { reply: answer })
  let text = ''
  for await (const m of events) {
    check(m)
    if (m.headers?.get('Salt-End')) return
    text += m.string()
    m.respond() // it was taken: without this the master stops after some thousand
    if (m.headers?.get('Salt-Part')) continue // the next message goes on with this one
    const event = JSON.parse(text)
    text = ''
    if (event.ready) console.error('listening')
    else console.log(JSON.stringify(event))
  }
  throw await nc.closed() ?? new Error('the connection has ended')
}

async function main () {
  const nc = await dial()
  if (verb === 'fire') await fire(nc, ...words)
  else await listen(nc, words)
  await nc.close()
}

main().catch((err) => {
  console.error(err.message)
  process.exit(1)
})
