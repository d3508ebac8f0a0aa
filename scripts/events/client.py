#!/usr/bin/env python3
"""Fires and hears events of a master's bus, and runs functions on minions, with nothing but
the standard library of Python:

  client.py DIR fire TAG DATA                   stores one event; DATA is JSON
  client.py DIR listen TAG...                   prints events whose tags begin so, a line each
  client.py DIR run TARGET FUNCTION [JSON...]   prints what each minion returns, a line each

DIR is what salt-event creds has written. The class Connection is the whole of the protocol of
NATS that this needs; with nats-py it is nats.connect() with the same options.
"""
import json
import os
import secrets
import socket
import ssl
import sys
import urllib.parse


class Refused(Exception):
    """What the master has refused."""


class Connection:
    """A connection with credentials. Each has an inbox of its own, named by a nonce of 16 to
    64 letters and digits that nobody can guess; the user of the connection is that nonce."""

    def __init__(self, directory):
        with open(os.path.join(directory, 'client.json'), encoding='utf-8') as f:
            self.creds = json.load(f)
        nonce = secrets.token_hex(16)
        self.inbox = self.creds['inbox'] + '.' + nonce
        self.asked = 0
        url = urllib.parse.urlsplit(self.creds['url'])
        plain = socket.create_connection((url.hostname, url.port), timeout=20)
        self.greeting(plain)
        trust = ssl.create_default_context(cafile=os.path.join(directory, self.creds['ca']))
        trust.minimum_version = ssl.TLSVersion.TLSv1_3
        trust.load_cert_chain(os.path.join(directory, self.creds['cert']), os.path.join(directory, self.creds['key']))
        self.socket = trust.wrap_socket(plain, server_hostname=self.creds['server_name'])
        self.lines = self.socket.makefile('rb')
        self.send('CONNECT', json.dumps({'user': nonce, 'verbose': False, 'pedantic': False, 'headers': True,
                                         'no_responders': True, 'protocol': 1, 'lang': 'python', 'version': '1'})
                  + '\r\nPING')  # at once: who is refused is not written to any more
        self.read(until=b'PONG')
        self.socket.settimeout(None)

    @staticmethod
    def greeting(plain):
        """Reads the first line of the server, and nothing behind it: TLS begins there."""
        while plain.recv(1) != b'\n':
            pass

    def send(self, *words, body=None):
        line = ' '.join(words).encode() + b'\r\n'
        self.socket.sendall(line if body is None else line + body + b'\r\n')

    def read(self, until=None):
        """Returns the next message as its reply subject, headers and body."""
        while True:
            line = self.lines.readline()
            words = line.split()
            if not line or words[0] == b'-ERR':
                raise ConnectionError(line.decode().strip() or 'the connection has ended')
            if words[0] == b'PING':
                self.send('PONG')
            elif words[0] == until:
                return None
            elif words[0] in (b'MSG', b'HMSG'):
                return self.message(words)

    def message(self, words):
        headed = words[0] == b'HMSG'
        sizes = [int(w) for w in (words[-2:] if headed else words[-1:])]
        reply = words[3].decode() if len(words) > 4 + headed else ''
        data = self.lines.read(sizes[-1] + 2)[:-2]
        headers = {}
        if headed:
            for line in data[:sizes[0]].decode().split('\r\n')[1:]:
                name, _, value = line.partition(':')
                headers[name.strip()] = value.strip()
            data = data[sizes[0]:]
        return reply, headers, data

    def ask(self, operation, request):
        """Yields the messages of the answer to one request, as they come."""
        subject, body = self.creds['subjects'][operation], json.dumps(request).encode()
        self.asked += 1
        answer = f'{self.inbox}.{self.asked}'
        self.send('SUB', answer, str(self.asked))
        self.send('PUB', subject, answer, str(len(body)), body=body)
        text = b''
        while True:
            reply, headers, data = self.read()
            if 'Nats-Service-Error' in headers:
                raise Refused(headers.get('Nats-Service-Error-Code', '') + ': ' + headers['Nats-Service-Error'])
            if 'Salt-End' in headers:
                return
            text += data
            if reply:  # it was taken: without this the master stops after some thousand
                self.send('PUB', reply, '0', body=b'')
            if 'Salt-Part' not in headers:  # else the next message goes on with this one
                yield json.loads(text)
                text = b''


def fire(connection, tag, data):
    for answer in connection.ask('fire', {'events': [{'tag': tag, 'data': json.loads(data)}]}):
        print(answer['outcome'])  # stored


def listen(connection, *tags):
    for event in connection.ask('listen', {'tags': tags}):
        if event.get('ready'):
            print('listening', file=sys.stderr, flush=True)
        else:
            print(json.dumps(event), flush=True)


def run(connection, target, function, *words):
    command = {'fun': function, 'arg': [json.loads(w) for w in words], 'kwarg': {}}
    for step in connection.ask('publish', {'tgt': target, 'tgt_type': 'glob', 'commands': [command]}):
        if 'jid' in step:
            print('job', step['jid'], 'on', ', '.join(step['minions']), file=sys.stderr)
        elif step['state'] in ('done', 'failed'):
            print(json.dumps({step['id']: step['return']}), flush=True)
        elif step['state'] not in ('received', 'running'):
            print(f"{step['id']}: {step['state']} {step.get('text', '')}", file=sys.stderr)


def main():
    directory, verb, *words = sys.argv[1:]
    try:
        {'fire': fire, 'listen': listen, 'run': run}[verb](Connection(directory), *words)
    except (Refused, OSError) as err:
        sys.exit(str(err))


if __name__ == '__main__':
    main()
