package job

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// Command is a salt.Command in messages.
type Command salt.Command

// MarshalJSON implements json.Marshaler. It keeps the types of arguments.
func (c Command) MarshalJSON() ([]byte, error) { return c.append(nil) }

func (c Command) append(b []byte) ([]byte, error) {
	b, err := value.Append(append(b, `{"fun":`...), string(c.Function))
	if err != nil {
		return nil, err
	}
	args, kwargs := c.Args, c.Kwargs
	if args == nil {
		args = []any{}
	}
	if kwargs == nil {
		kwargs = map[string]any{}
	}
	b, err = value.AppendMembers(b, value.Member{Key: "arg", V: args}, value.Member{Key: "kwarg", V: kwargs})
	return append(b, '}'), err
}

// AppendCommands appends a list of commands to b, as encoding/json writes it.
func AppendCommands(b []byte, list []Command) ([]byte, error) {
	b = append(b, '[')
	for i, c := range list {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = c.append(b); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler; the name of the function is checked.
func (c *Command) UnmarshalJSON(b []byte) error {
	var name string
	var args, kwargs value.Value
	err := value.Members(b, func(key string, v []byte) error {
		switch key {
		case "fun":
			return value.Text(v, &name)
		case "arg":
			return args.UnmarshalJSON(v)
		case "kwarg":
			return kwargs.UnmarshalJSON(v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	f, err := salt.ParseFunction(name)
	if err != nil {
		return err
	}
	c.Function = f
	switch a := args.V.(type) {
	case nil:
		c.Args = []any{}
	case []any:
		c.Args = a
	default:
		return fmt.Errorf("arguments of %s are not a list", f)
	}
	switch k := kwargs.V.(type) {
	case nil:
		c.Kwargs = map[string]any{}
	case map[string]any:
		c.Kwargs = k
	default:
		return fmt.Errorf("keyword arguments of %s are not a map", f)
	}
	return nil
}

// Envelope is a job as minions get it.
type Envelope struct {
	JID        salt.JID  `json:"jid"`
	Commands   []Command `json:"commands"`
	Compound   bool      `json:"compound,omitempty"` // several functions, or one written as a list
	Target     string    `json:"tgt"`
	TargetType string    `json:"tgt_type"`
	Delimiter  string    `json:"delimiter,omitempty"`
	User       string    `json:"user"`              // who started it, for people to read
	From       string    `json:"from,omitempty"`    // the minion that has published it
	Returner   string    `json:"ret,omitempty"`     // returners of the minions, separated by commas
	ReturnTag  string    `json:"ret_tag,omitempty"` // of the events of the returner master_bus
	// ReturnConfig names another set of the returners' settings, ReturnKwargs single
	// ones of them.
	ReturnConfig string      `json:"ret_config,omitempty"`
	ReturnKwargs value.Value `json:"ret_kwargs,omitzero"`
	Follow       bool        `json:"follow,omitempty"` // send the output of commands while they run
	Expires      time.Time   `json:"expires"`          // by the master's clock; no minion starts it later
	Heartbeat    Seconds     `json:"beat"`             // pause between heartbeats while it runs
	// Live means that the master cannot store returns now: the minion tells it each return at once,
	// to be shown, besides putting it into its outbox.
	Live bool `json:"live,omitempty"`
	// Reach is what the commands may make others do. Without it they may do nothing: so minions
	// refuse what a master has not decided about.
	Reach salt.Reach `json:"reach,omitzero"`
}

// Seconds is a duration as a number of seconds in messages.
type Seconds float64

// Duration returns the span.
func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// Functions returns the names of the commands.
func (e *Envelope) Functions() []salt.Function {
	names := make([]salt.Function, len(e.Commands))
	for i, c := range e.Commands {
		names[i] = c.Function
	}
	return names
}

// Fun is the function as events and returns show it: a text, or for a compound command a list,
// as in Salt.
func (e *Envelope) Fun() any {
	if !e.Compound && len(e.Commands) == 1 {
		return string(e.Commands[0].Function)
	}
	names := make([]any, len(e.Commands))
	for i, c := range e.Commands {
		names[i] = string(c.Function)
	}
	return names
}

// Signer signs with the master's key; Verifier checks against it.
type (
	Signer interface {
		Sign(data []byte) ([]byte, error)
	}
	Verifier interface{ Verify(data, sig []byte) error }
)

// signed is the form of an envelope on the bus. The signature is over the exact bytes of Job,
// after the context: so the encoding does not matter, and a signature made for another purpose
// is not valid for a job.
type signed struct {
	Job json.RawMessage `json:"job"`
	Sig []byte          `json:"sig"`
}

// read is json.Unmarshal without parsing the job, which was not verified yet.
func (s *signed) read(b []byte) error {
	return value.Members(b, func(key string, v []byte) error {
		switch key {
		case "job":
			s.Job = v
		case "sig":
			return json.Unmarshal(v, &s.Sig)
		}
		return nil
	})
}

const signContext = "salt job envelope 1\n"

// Errors of Open, each a reason not to run the job.
var (
	ErrSignature = errors.New("the job is not signed by this master")
	ErrExpired   = errors.New("the job has expired")
)

// Seal signs the envelope and returns the message for the minions, the same for all.
func Seal(e *Envelope, key Signer) ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", e.JID, err)
	}
	sig, err := key.Sign(append([]byte(signContext), body...))
	if err != nil {
		return nil, fmt.Errorf("sign job %s: %w", e.JID, err)
	}
	return json.Marshal(signed{Job: body, Sig: sig})
}

// Open first verifies the signature, then the form and the expiry at now, the master's time.
func Open(b []byte, key Verifier, now time.Time) (*Envelope, error) {
	var s signed
	if err := s.read(b); err != nil {
		return nil, fmt.Errorf("%w: it is not a job at all", ErrSignature)
	}
	if err := key.Verify(append([]byte(signContext), s.Job...), s.Sig); err != nil {
		return nil, ErrSignature
	}
	var e Envelope
	if err := json.Unmarshal(s.Job, &e); err != nil {
		return nil, fmt.Errorf("unreadable job: %w", err)
	}
	if _, err := salt.ParseJID(string(e.JID)); err != nil {
		return nil, err
	}
	if len(e.Commands) == 0 {
		return nil, fmt.Errorf("job %s has no function", e.JID)
	}
	if !now.Before(e.Expires) {
		return &e, ErrExpired
	}
	return &e, nil
}
