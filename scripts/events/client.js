#!/usr/bin/env node
// Fires and hears events of a master's bus, and runs functions on minions, with an
// ordinary NATS client:
//
//   client.js DIR fire TAG DATA                   stores one event; DATA is JSON
//   client.js DIR listen TAG...                   prints events whose tags begin so, a line each
//   client.js DIR run TARGET FUNCTION [JSON...]   prints what each minion returns, a line each
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

// answers are the messages of the answer to one request, as they come.
async function * answers (nc, subject, request) {
  const answer = `${nc.options.inboxPrefix}.answer`
  const messages = nc.subscribe(answer)
  nc.publish(subject, JSON.stringify(request), { reply: answer })
  let pieces = []
  for await (const m of messages) {
    check(m)
    if (m.headers?.get('Salt-End')) return
    pieces.push(m.data) // bytes: a piece may end within a character
    m.respond() // it was taken: without this the master stops after some thousand
    if (m.headers?.get('Salt-Part')) continue // the next message goes on with this one
    yield JSON.parse(Buffer.concat(pieces).toString())
    pieces = []
  }
  throw await nc.closed() ?? new Error('the connection has ended')
}

async function listen (nc, tags) {
  for await (const event of answers(nc, creds.subjects.listen, { tags })) {
    if (event.ready) console.error('listening')
    else console.log(JSON.stringify(event))
  }
}

async function run (nc, target, fun, ...words) {
  const commands = [{ fun, arg: words.map(w => JSON.parse(w)), kwarg: {} }]
  const request = { tgt: target, tgt_type: 'glob', commands }
  for await (const u of answers(nc, creds.subjects.publish, request)) {
    if (u.jid) console.error(`job ${u.jid} on ${u.minions.join(', ')}`)
    else if (u.state === 'done' || u.state === 'failed') console.log(JSON.stringify({ [u.id]: u.return }))
    else if (u.state !== 'received' && u.state !== 'running') console.error(`${u.id}: ${u.state} ${u.text ?? ''}`)
  }
}

async function main () {
  const nc = await dial()
  if (verb === 'fire') await fire(nc, ...words)
  else if (verb === 'run') await run(nc, ...words)
  else await listen(nc, words)
  await nc.close()
}

main().catch((err) => {
  console.error(err.message)
  process.exit(1)
})
