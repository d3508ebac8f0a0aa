// Package libpam calls the system's PAM library, which it loads when asked: no
// headers of it are needed to build and no C compiler. It is for a process that
// asks one question and ends, and never for a daemon.
package libpam

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/brinebus/brine/internal/pam"
)

// From security/_pam_types.h, whose numbers are fixed.
const (
	success         = 0
	openErr         = 1
	symbolErr       = 2
	serviceErr      = 3
	systemErr       = 4
	bufErr          = 5
	convErr         = 19
	authinfoUnavail = 9
	abort           = 26

	itemUser      = 2
	itemFailDelay = 10

	silent          = 0x8000
	disallowNullPwd = 0x1

	promptEchoOff = 1
	promptEchoOn  = 2
	maxMessages   = 32
)

// The structures of the library.
type (
	handle  struct{}
	message struct {
		style int32
		_     uintptr // its text
	}
	response struct {
		text unsafe.Pointer // of malloc; the library frees it
		_    int32
	}
	conversation struct {
		answer uintptr
		_      uintptr
	}
)

// library is what is called of libpam and libc.
type library struct {
	start        func(service, user string, c *conversation, h **handle) int32
	end          func(h *handle, status int32) int32
	setItem      func(h *handle, item int32, value uintptr) int32
	getItem      func(h *handle, item int32, value *unsafe.Pointer) int32
	authenticate func(h *handle, flags int32) int32
	account      func(h *handle, flags int32) int32
	strerror     func(h *handle, code int32) string
	calloc       func(n, size uintptr) unsafe.Pointer
	strdup       func(s string) unsafe.Pointer
	strlen       func(p unsafe.Pointer) uintptr
}

// load opens the library under the name that its package installs, not that of
// its headers.
func load() (*library, error) {
	h, err := purego.Dlopen("libpam.so.0", purego.RTLD_NOW|purego.RTLD_GLOBAL) // modules look for it among what is global
	if err != nil {
		return nil, fmt.Errorf("load the PAM library: %w", err)
	}
	l := &library{}
	for name, f := range map[string]any{
		"pam_start": &l.start, "pam_end": &l.end, "pam_set_item": &l.setItem, "pam_get_item": &l.getItem,
		"pam_authenticate": &l.authenticate, "pam_acct_mgmt": &l.account, "pam_strerror": &l.strerror,
		"calloc": &l.calloc, "strdup": &l.strdup, "strlen": &l.strlen, // libc is among what libpam needs
	} {
		symbol, err := purego.Dlsym(h, name)
		if err != nil {
			return nil, fmt.Errorf("load the PAM library: %w", err)
		}
		purego.RegisterFunc(f, symbol)
	}
	return l, nil
}

// Ask asks the library one question. An error means that it is not there.
func Ask(q pam.Question) (pam.Answer, error) {
	if strings.ContainsRune(q.Service+q.User+q.Password, 0) || q.Service == "" || q.User == "" {
		return pam.Answer{Step: pam.Start, Reason: "a name is empty or holds a zero byte"}, nil
	}
	l, err := load()
	if err != nil {
		return pam.Answer{}, err
	}
	runtime.LockOSThread() // modules keep things by thread
	defer runtime.UnlockOSThread()
	return l.ask(q), nil
}

func (l *library) ask(q pam.Question) pam.Answer {
	talk := &conversation{answer: purego.NewCallback(func(n int32, messages **message, responses **response, _ unsafe.Pointer) uintptr {
		return l.converse(q.Password, n, messages, responses)
	})}
	var h *handle
	if code := l.start(q.Service, q.User, talk, &h); code != success {
		return l.refusal(h, pam.Start, code)
	}
	status := int32(success)
	defer func() { l.end(h, status) }()
	// The pause after a wrong password is the master's own, outside of this process.
	l.setItem(h, itemFailDelay, purego.NewCallback(func(int32, uint32, unsafe.Pointer) uintptr { return 0 }))
	if !q.AccountOnly {
		if status = l.authenticate(h, silent|disallowNullPwd); status != success {
			return l.refusal(h, pam.Authentication, status)
		}
	}
	// A password that has expired is refused here too: nobody could change it.
	if status = l.account(h, silent|disallowNullPwd); status != success {
		return l.refusal(h, pam.Account, status)
	}
	runtime.KeepAlive(talk)
	return pam.Answer{Allowed: true, User: l.user(h)}
}

// user is the name as the modules write it.
func (l *library) user(h *handle) string {
	var p unsafe.Pointer
	if l.getItem(h, itemUser, &p) != success || p == nil {
		return ""
	}
	return string(unsafe.Slice((*byte)(p), l.strlen(p)))
}

// broken are the codes by which the library says that it could not decide.
var broken = map[int32]bool{openErr: true, symbolErr: true, serviceErr: true, systemErr: true, bufErr: true, authinfoUnavail: true, abort: true}

func (l *library) refusal(h *handle, step string, code int32) pam.Answer {
	return pam.Answer{Step: step, Reason: l.strerror(h, code), Broken: broken[code]}
}

// converse answers what modules ask: the password where it is not to be seen,
// nothing else.
func (l *library) converse(password string, n int32, messages **message, responses **response) uintptr {
	if n < 1 || n > maxMessages {
		return convErr
	}
	asked := unsafe.Slice(messages, n)
	memory := l.calloc(uintptr(n), unsafe.Sizeof(response{}))
	if memory == nil {
		return bufErr
	}
	answers := unsafe.Slice((*response)(memory), n)
	for i, m := range asked {
		switch m.style {
		case promptEchoOff:
			answers[i].text = l.strdup(password)
		case promptEchoOn:
			answers[i].text = l.strdup("")
		}
	}
	*responses = (*response)(memory)
	return success
}
