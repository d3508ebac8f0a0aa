package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	quietPings = 100
	pingPause  = 2 * time.Millisecond // between two, so that the operator is not a flood
	askTime    = 15 * time.Second     // what takes longer is not served
)

// operator is root with a connection to the master's socket: the other identity, whom an
// attack must not concern.
type operator struct {
	*wire
	v      *victim
	events []string // tags of those that were acknowledged
	jobs   []string // ids of those whose return came
	failed int
}

func (v *victim) operator() *operator {
	v.t.Helper()
	o, err := v.dialOperator()
	if err != nil {
		v.t.Fatal(err)
	}
	return o
}

func (v *victim) dialOperator() (*operator, error) {
	w, err := dialSocket(filepath.Join(v.dir, "master/run/master.sock"), os.Geteuid())
	if err != nil {
		return nil, err
	}
	return &operator{wire: w, v: v}, nil
}

// request asks and hands over each message of the answer.
func (o *operator) request(op string, body any, each func([]byte) error) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	reply := o.reply()
	if err := o.ask(o.root+".req."+op, reply, b); err != nil {
		return err
	}
	if err := o.w.Flush(); err != nil {
		return err
	}
	defer func() { _ = o.SetReadDeadline(time.Time{}) }()
	var have []byte
	for {
		_ = o.SetReadDeadline(time.Now().Add(askTime))
		subject, data, err := o.message()
		if err != nil {
			return err
		}
		if subject != reply {
			continue // of a request that was given up
		}
		if o.confirm != "" {
			if err := errors.Join(o.publish(o.confirm, ""), o.w.Flush()); err != nil {
				return err
			}
		}
		have = append(have, data...)
		switch {
		case strings.Contains(o.head, "Salt-Part"):
			continue
		case strings.Contains(o.head, "Nats-Service-Error"):
			return errors.New(string(have))
		}
		if len(have) > 0 {
			if err := each(have); err != nil {
				return err
			}
		}
		if strings.Contains(o.head, "Salt-End") {
			return nil
		}
		have = nil
	}
}

// command is what publish and run take.
func command(fun string, args ...any) map[string]any {
	return map[string]any{"fun": fun, "arg": append([]any{}, args...), "kwarg": map[string]any{}}
}

func publication(target, form, fun string, args ...any) map[string]any {
	return map[string]any{"tgt": target, "tgt_type": form, "timeout": 10, "commands": []any{command(fun, args...)}}
}

// do runs a function on one minion and returns the job's id.
func (o *operator) do(id, fun string, args ...any) (jid string, err error) {
	done := false
	err = o.request("publish", publication(id, "glob", fun, args...), func(b []byte) error {
		var m struct{ JID, ID, State string }
		if err := json.Unmarshal(b, &m); err != nil {
			return err
		}
		if m.JID != "" {
			jid = m.JID
		}
		done = done || m.ID == id && m.State == "done"
		return nil
	})
	if err == nil && !done {
		err = fmt.Errorf("%s has not answered", id)
	}
	return jid, err
}

func (o *operator) ping(id string) error {
	_, err := o.do(id, "test.ping")
	return err
}

// latency is what pings took.
type latency struct {
	p50, p99 time.Duration
	count    int
}

func latencyOf(all []time.Duration) latency {
	if len(all) == 0 {
		return latency{}
	}
	slices.Sort(all)
	return latency{all[len(all)/2], all[(len(all)*99)/100], len(all)}
}

// measure pings so many times.
func (o *operator) measure(times int) latency {
	var all []time.Duration
	for range times {
		all = append(all, o.once())
		time.Sleep(pingPause)
	}
	return latencyOf(all)
}

// measureWhile pings until the attack has been made and the new minion is in.
func (o *operator) measureWhile(a *attacking, j *joining) latency {
	const fewest, shortest = 100, time.Second
	var all []time.Duration
	for begun := time.Now(); ; {
		all = append(all, o.once())
		took := time.Since(begun)
		if a.sent() && isClosed(j.done) && len(all) >= fewest && took > shortest || took > mostAttack() {
			break
		}
		time.Sleep(pingPause)
	}
	<-j.done
	if j.err != nil {
		o.v.t.Errorf("the new minion does not run jobs: %v\n%s", j.err, o.v.logs())
	}
	if !a.sent() {
		o.v.t.Errorf("the attack was not over within %s", mostAttack())
	}
	return latencyOf(all)
}

// bystander pings a minion of a master that nobody attacks, on the same machine at the same time.
type bystander struct {
	over chan struct{}
	took chan latency
}

// bystand starts one, in the full form: what it measures is for judging latency.
func bystand(t *testing.T) *bystander {
	b := &bystander{make(chan struct{}), make(chan latency, 1)}
	if !*full {
		b.took <- latency{}
		return b
	}
	v := start(t, row{})
	o := v.operator()
	go func() {
		var all []time.Duration
		for ; !isClosed(b.over); time.Sleep(pingPause) {
			all = append(all, o.once())
		}
		b.took <- latencyOf(all)
	}()
	return b
}

// end returns what it has measured.
func (b *bystander) end() latency {
	close(b.over)
	return <-b.took
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// once pings, and fires an event that must be kept. Whoever is not served comes again, by
// a new connection, as a person would.
func (o *operator) once() time.Duration {
	begun := time.Now()
	jid, err := o.do("web1", "test.ping")
	took := time.Since(begun)
	if err == nil {
		o.jobs = append(o.jobs, jid)
		tag := fmt.Sprintf("kept/%d", len(o.events))
		if err = o.request("fire", map[string]any{"events": []any{map[string]any{"tag": tag, "data": map[string]any{}}}}, func([]byte) error { return nil }); err == nil {
			o.events = append(o.events, tag)
			return took
		}
	}
	o.failed++
	if o.failed < 10 {
		o.v.t.Logf("the operator is not served: %v", err)
	}
	if again, dialErr := o.v.dialOperator(); dialErr == nil {
		o.Close()
		o.wire = again.wire
	}
	return took
}

// account is how much was acknowledged.
func (o *operator) account() int { return len(o.events) + len(o.jobs) }

// lost counts what was acknowledged and is not in the journal.
func (o *operator) lost() int {
	kept, err := o.kept()
	if err != nil {
		o.v.t.Errorf("the journal is not read: %v", err)
		return o.account()
	}
	lost := 0
	for _, tag := range o.events {
		if !kept[tag] {
			lost++
		}
	}
	for _, jid := range o.jobs {
		if !kept["salt/job/"+jid+"/ret/web1"] {
			lost++
		}
	}
	return lost
}

// kept are the tags of what the operator has done, as the journal has them.
func (o *operator) kept() (map[string]bool, error) {
	tags := map[string]bool{}
	fresh, err := o.v.dialOperator()
	if err != nil {
		return nil, err
	}
	defer fresh.Close()
	q := map[string]any{"tags": []string{"kept/", "salt/job/"}, "from_seq": 1, "until_end": true}
	return tags, fresh.request("listen", q, func(b []byte) error {
		var e struct{ Tag string }
		err := json.Unmarshal(b, &e)
		tags[strings.Clone(e.Tag)] = true
		return err
	})
}
