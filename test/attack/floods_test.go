package attack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// halfOpen opens connections that say nothing, again where they are closed.
func halfOpen(a *attack) {
	a.stayOpen(func(i int) (*wire, error) { return dialTCP(a.address(), address(i, 250)) })
}

// silentTLS proves a key, and says nothing.
func silentTLS(a *attack) {
	a.stayOpen(func(i int) (*wire, error) {
		return dialTLS(a.address(), address(i, 250), newKey(fmt.Sprintf("silent%d", i)))
	})
}

// address is one of so many of this machine.
func address(i, of int) string {
	i %= of
	return fmt.Sprintf("127.77.%d.%d", i/250+1, i%250+1)
}

// stayOpen has as many connections as it was told, and replaces each that is closed until
// the end. Those that are refused count as tried.
func (a *attack) stayOpen(dial func(i int) (*wire, error)) {
	a.many(a.Count, 64, func(i int) error {
		w, err := dial(i)
		if err != nil {
			return err
		}
		a.wg.Go(func() {
			for {
				a.drain(w)
				if a.cut.Add(1); isClosed(a.over) {
					return
				}
				for w = nil; w == nil; time.Sleep(20 * time.Millisecond) {
					if isClosed(a.over) {
						return
					}
					w, _ = dial(i)
				}
			}
		})
		return nil
	})
}

// drain reads until the server ends the connection, or the attack is over.
func (a *attack) drain(w *wire) {
	done := make(chan struct{})
	go func() {
		w.drain()
		close(done)
	}()
	select {
	case <-done:
	case <-a.over:
	}
	w.Close()
	<-done
}

const question = `{"version":"1"}`

// unknownKeys connects with ever new keys, from so many addresses.
func unknownKeys(addresses int) func(*attack) {
	return func(a *attack) {
		a.many(a.Count, 32, func(i int) error {
			k := newKey(fmt.Sprintf("unknown%d", i))
			w, err := dialKey(a.address(), address(i, addresses), k)
			if err != nil {
				return err
			}
			a.hold(w)
			if err := w.ask("salt.key."+k.token()+".req.ask", w.reply(), []byte(question)); err != nil {
				return err
			}
			return w.w.Flush()
		})
	}
}

// fourConnections asks without end and reads nothing.
func fourConnections(a *attack) {
	body := []byte(`{"version":"` + strings.Repeat("x", 60<<10) + `"}`)
	var wg sync.WaitGroup
	for c := range 4 {
		wg.Go(func() {
			k := newKey(fmt.Sprintf("loud%d", c))
			dial := func() (*wire, error) { return dialKey(a.address(), address(c, 4), k) }
			a.flood(dial, a.Count/4, false, func(w *wire, _ int) error {
				return w.ask("salt.key."+k.token()+".req.ask", w.reply(), body)
			})
		})
	}
	wg.Wait()
}

// longQuestions asks as much, and as often, as one connection ever could.
func longQuestions(a *attack) {
	body := []byte(`{"version":"` + strings.Repeat("x", 63<<10) + `"}`)
	a.many(a.Count, 8, func(i int) error {
		k := newKey(fmt.Sprintf("long%d", i))
		w, err := dialKey(a.address(), address(i, 250), k)
		if err != nil {
			return err
		}
		a.hold(w)
		go w.drain()
		for range 128 {
			if err := w.ask("salt.key."+k.token()+".req.ask", w.reply(), body); err != nil {
				return err
			}
		}
		return w.w.Flush()
	})
}

// impostors claim an id that another key has.
func impostors(a *attack) {
	a.many(a.Count, 32, func(i int) error {
		w, err := dialKey(a.address(), address(i, 250), newKey("web1"))
		if err == nil {
			a.hold(w)
		}
		return err
	})
}

// junk sends what is not a request.
func junk(a *attack) {
	bodies := [][]byte{{}, []byte("i"), []byte("\x00\xff"), []byte(`i{"tgt":`), []byte("p" + strings.Repeat("x", 100)), []byte("e{}"), []byte("x{}"), []byte("i[[[[[[["), []byte("i\x1e{}\n{"), bytes.Repeat([]byte("i"), 1000), []byte(`{"tgt":`), []byte("[[[[[["), []byte("\x1e{}\n{")}
	subjects := []string{".fire", ".credit", ".ack.1.5", ".ret.20260101000000000000"}
	for _, op := range a.Ops {
		subjects = append(subjects, ".req."+op)
	}
	a.flood(a.asMinion, a.Count, true, func(w *wire, i int) error {
		return w.publish(w.root+subjects[i%len(subjects)], w.reply(), bodies[i/len(subjects)%len(bodies)])
	})
}

// unreadRequests asks for what it may ask, and takes no answer.
func unreadRequests(a *attack) {
	a.flood(a.asMinion, a.Count, false, func(w *wire, i int) error {
		ops := []string{"pillar", "files", "mine_get", "publish"}
		return w.ask(w.root+".req."+ops[i%len(ops)], w.reply(), []byte(`{"env":"base","tgt":"*","tgt_type":"glob","names":["x"],"commands":[{"fun":"test.ping","arg":[],"kwarg":{}}],"timeout":1}`))
	})
}

// strayMessages sends messages of the flow control of an answer, without any.
func strayMessages(dial func(*attack) (*wire, error), subject string) func(*attack) {
	return func(a *attack) {
		a.flood(func() (*wire, error) { return dial(a) }, a.Count, true, func(w *wire, i int) error {
			return w.publish(w.root+subject, "", fmt.Appendf(nil, "%s.%d %d", w.inbox, i, i<<20))
		})
	}
}

// foreignReplies asks for answers that would reach somebody else.
func foreignReplies(a *attack) {
	a.flood(a.asMinion, a.Count, true, func(w *wire, i int) error {
		reply := []string{"salt.minion.web1.job", "salt.event.x", "_INBOX.minion.web1.1"}[i%3]
		return w.publish(w.root+".req."+a.Ops[i%len(a.Ops)], reply, []byte("{}"))
	})
}

// foreignQuestions does so with keys that nobody has accepted.
func foreignQuestions(a *attack) {
	const keys = 50
	var wg sync.WaitGroup
	for n := range keys {
		wg.Go(func() {
			k := newKey(fmt.Sprintf("reflector%d", n))
			dial := func() (*wire, error) { return dialKey(a.address(), address(n, keys), k) }
			a.flood(dial, a.Count/keys, true, func(w *wire, _ int) error {
				return w.publish("salt.key."+k.token()+".req.ask", "salt.minion.web1.job", []byte(question))
			})
		})
	}
	wg.Wait()
}

// endless sends requests whose last piece never comes, and some that are whole.
func endless(dial func(*attack) (*wire, error)) func(*attack) {
	return func(a *attack) {
		piece := []byte(strings.Repeat("x", 512<<10))
		a.flood(func() (*wire, error) { return dial(a) }, a.Count, false, func(w *wire, i int) error {
			reply, subject := fmt.Sprintf("%s.%d", w.inbox, i/16), w.root+".req."+a.Ops[i/16%len(a.Ops)]
			switch {
			case i%16 == 15:
				return w.publish(subject, reply, piece)
			case i/16%2 == 1: // with protocol 1
				return w.publish(subject, reply, []byte("p"), piece)
			}
			return w.publishPart(subject, reply, piece)
		})
	}
}

func uniqueTag(i int) string { return fmt.Sprintf("evil/%d/x", i) }

func fireBody(tag string, size int) []byte {
	b, err := json.Marshal(map[string]any{"events": []any{map[string]any{"tag": tag, "data": map[string]any{"x": strings.Repeat("x", size)}}}})
	if err != nil {
		panic(err)
	}
	return b
}

// events fires without waiting for answers.
func events(tag func(int) string, size int) func(*attack) {
	return func(a *attack) {
		a.flood(a.asMinion, a.Count, true, func(w *wire, i int) error {
			return w.ask(w.root+".fire", w.reply(), fireBody(tag(i), size))
		})
	}
}

func grains(a *attack) {
	a.flood(a.asMinion, a.Count, true, func(w *wire, i int) error {
		body := fmt.Appendf(nil, `{"version":"1","grains":{"x%d":[%s0]}}`, i, strings.Repeat("0,", 350<<10))
		return w.ask(w.root+".req."+[]string{"hello", "grains"}[i%2], w.reply(), body)
	})
}

// clientEvents fires as a client does: its requests are plain.
func clientEvents(a *attack) {
	a.flood(a.asClient, a.Count, true, func(w *wire, i int) error {
		return w.publish(w.root+".req.fire", w.reply(), fireBody(fmt.Sprintf("client/%d", i), 1000))
	})
}

// fillJournal has much to be heard.
func fillJournal(v *victim) {
	o := v.operator()
	defer o.Close()
	for range 200 {
		b := json.RawMessage(fireBody("nobody/x", 200<<10))
		if err := o.request("fire", b, func([]byte) error { return nil }); err != nil {
			v.t.Fatal(err)
		}
	}
}

// deafListeners ask for everything, and read nothing of it.
func deafListeners(a *attack) {
	a.many(a.Count, 4, func(int) error {
		w, err := a.asUser()
		if err != nil {
			return err
		}
		a.hold(w)
		for range 8 {
			if err := w.ask(w.root+".req.listen", w.reply(), []byte(`{"tags":["nobody/"],"from_seq":1}`)); err != nil {
				return err
			}
		}
		return w.w.Flush()
	})
}

// deadLetters keeps some, and lists them without reading.
func deadLetters(a *attack) {
	text := strings.Repeat("x", 800<<10)
	a.flood(a.asUser, a.Count, true, func(w *wire, i int) error {
		b := fmt.Appendf(nil, `{"do":"put","letter":{"name":"h","seq":%d,"tag":"nobody/x","event":{"x":"%s"},"command":["x"],"attempts":1,"reason":"x","time":"2026-01-01T00:00:00Z"}}`, i+1, text)
		return w.ask(w.root+".req.dead", w.reply(), b)
	})
	for range 4 {
		w, err := a.asUser()
		if err != nil {
			a.failed(err)
			continue
		}
		a.hold(w)
		for range 32 {
			a.failed(w.ask(w.root+".req.dead", w.reply(), []byte(`{"do":"list"}`)))
		}
		a.failed(w.w.Flush())
	}
}

// bigReturn has web1 return 60 MB.
func bigReturn(v *victim) {
	o := v.operator()
	defer o.Close()
	jid, err := o.do("web1", "cmd.run", "head -c 60000000 /dev/zero | tr '\\0' x")
	if err != nil {
		v.t.Fatal(err)
	}
	v.notes = map[string]string{"jid": jid}
}

// bigReturns tells of jobs that nobody has asked for, one behind the other: what the journal
// is to keep is long, and others want to write there too.
func bigReturns(a *attack) {
	body := strings.Repeat("x", 60_000_000)
	w, err := a.asMinion()
	if err != nil {
		a.failed(err)
		return
	}
	defer w.Close()
	a.many(a.Count, 1, func(i int) error {
		b := fmt.Appendf(nil, `{"jid":"20260101%012d","command":{"fun":"cmd.run"},"retcode":0,"success":true,"return":"%s"}`, i, body)
		reply := w.reply()
		if err := errors.Join(w.ask(w.root+".req.return", reply, b), w.w.Flush()); err != nil {
			return err
		}
		_ = w.SetReadDeadline(time.Now().Add(askTime))
		for {
			subject, answer, err := w.message()
			if err != nil {
				return err
			}
			if subject == reply && strings.Contains(w.head, "Nats-Service-Error") {
				return errors.New(string(answer))
			}
			if subject == reply {
				return nil
			}
		}
	})
}

// readTwice reads it as scripts of an operator do.
func readTwice(a *attack) {
	a.many(a.Count, 1, func(int) error {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				v := &victim{dir: a.Dir}
				o, err := v.dialOperator()
				if err != nil {
					a.failed(err)
					return
				}
				defer o.Close()
				size := 0
				err = o.request("run", map[string]any{"command": command("jobs.lookup_jid", a.Notes["jid"]), "timeout": 60}, func(b []byte) error {
					size += len(b)
					return nil
				})
				if err == nil && size < 60_000_000 {
					err = fmt.Errorf("of the big return %d bytes came", size)
				}
				a.failed(err)
			})
		}
		wg.Wait()
		return nil
	})
}

// userRequests asks for everything.
func userRequests(a *attack) {
	a.flood(a.asUser, a.Count, false, func(w *wire, i int) error {
		return w.ask(w.root+".req."+a.Ops[i%len(a.Ops)], w.reply(), []byte(`{"tgt":"*","tgt_type":"glob","commands":[{"fun":"test.ping","arg":[],"kwarg":{}}],"command":{"fun":"test.arg"},"events":[{"tag":"x"}],"do":"list","timeout":1}`))
	})
}

// bomb is the body that takes the most memory for its size when it is decoded.
func bomb(field string, size int) []byte {
	const one = `{"":0},`
	return []byte(`{"` + field + `":[` + strings.Repeat(one, size/len(one)) + `{}]}`)
}

// bombs sends them to every operation.
func bombs(dial func(*attack) (*wire, error), prefix string) func(*attack) {
	return func(a *attack) {
		fields := []string{"commands", "events", "grains", "messages", "put", "names", "command", "jobs", "tags", "x"}
		whole := map[string][]byte{}
		for _, f := range fields {
			whole[f] = bomb(f, 60_000_000)
		}
		for n := range a.Count {
			for i, op := range a.Ops {
				field := fieldOf(op, fields[(i+n)%len(fields)])
				a.flood(func() (*wire, error) { return dial(a) }, 1, true, func(w *wire, _ int) error {
					return w.ask(w.root+"."+prefix+op, w.reply(), whole[field])
				})
				for _, w := range a.open {
					w.Close()
				}
				a.open = nil
			}
		}
	}
}

// fieldOf is the field of the body of op that takes anything.
func fieldOf(op, other string) string {
	switch op {
	case "publish":
		return "commands"
	case "fire":
		return "events"
	case "hello", "grains":
		return "grains"
	case "messages":
		return "messages"
	case "mine":
		return "put"
	case "run":
		return "command"
	case "listen", "purge":
		return "tags"
	}
	return other
}

func clientBombs(a *attack) {
	body := bomb("events", 1_000_000)
	a.flood(a.asClient, a.Count*4, true, func(w *wire, i int) error {
		return w.publish(w.root+".req."+[]string{"fire", "listen", "place", "confirm"}[i%4], w.reply(), body)
	})
}

func unacceptedBombs(a *attack) {
	k := newKey("bomber")
	body := bomb("autosign_grains", 1_000_000)
	dial := func() (*wire, error) { return dialKey(a.address(), "127.66.6.8", k) }
	a.flood(dial, a.Count, true, func(w *wire, _ int) error {
		return w.publish("salt.key."+k.token()+".req.ask", w.reply(), body)
	})
}

// manyKeys makes targets dear: there are many minions to look at.
func manyKeys(v *victim) {
	text := newKey("many").public()
	for i := range 2000 {
		v.write(fmt.Sprintf("master/pki/minions/%s%d", strings.Repeat("a", 60), i), text)
	}
	o := v.operator()
	defer o.Close()
	v.await("the keys to be known", readyTime, func() bool { return o.ping("web1") == nil })
}

func expensivePattern(i int) string {
	return []string{
		strings.Repeat("(a*)*", 2000) + "b", "(a|aa)+$", "(.*a){25}b", "(a+)+" + strings.Repeat("a?", 2000) + "b", `(a)(\1)*` + strings.Repeat("(?=a*)", 500) + "b", "a{1,1000}{1,1000}{1,1000}",
	}[i%6]
}

func deepTarget(i int) string {
	const size = 60 << 10
	return []string{
		strings.Repeat("( ", size/2), strings.Repeat("( ", size/5) + "web1" + strings.Repeat(" )", size/5), "web1" + strings.Repeat(" or E@(a*)*b", size/12), strings.Repeat("not ", size/4) + "web1",
		"G@" + strings.Repeat("a:", size/2) + "*", "L@" + strings.Repeat("web1,", size/5),
	}[i%6]
}

// targets publishes to targets that are expensive.
func targets(form string, target func(int) string) func(*attack) {
	return func(a *attack) {
		a.flood(a.asUser, a.Count, true, func(w *wire, i int) error {
			b, err := json.Marshal(publication(target(i), form, "test.ping"))
			if err != nil {
				return err
			}
			return w.ask(w.root+".req.publish", w.reply(), b)
		})
	}
}

// minionsUser asks a minion's daemon.
func minionsUser(a *attack) {
	a.flood(a.asMinionsUser, a.Count, false, func(w *wire, i int) error {
		ops := []string{"fire", "listen", "place", "status", "publish", "master"}
		return w.ask(w.root+".req."+ops[i%len(ops)], w.reply(), []byte(`{"tags":["nobody/"],"from_seq":1,"events":[{"tag":"nobody/x","data":{}}]}`))
	})
}
