package returner

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/brinebus/brine/internal/salt"
	"github.com/brinebus/brine/internal/value"
)

// checkResults is Nagios's format for the results of passive checks.
type checkResults struct {
	XMLName xml.Name    `xml:"checkresults"`
	Result  checkResult `xml:"checkresult"`
}

type checkResult struct {
	Type      string `xml:"type,attr"`
	CheckType string `xml:"checktype,attr"`
	Host      string `xml:"hostname"`
	Service   string `xml:"servicename,omitempty"`
	State     int    `xml:"state"`
	Output    string `xml:"output"`
}

func openNRDP(h *Host, _ Options) (sender, error) {
	address, token := h.setting("", "nagios_nrdp.url"), h.setting("", "nagios_nrdp.token")
	if u, err := url.Parse(address); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, salt.WithHint(errors.New("there is no address of a server"), "set nagios_nrdp.url in the minion's configuration")
	}
	if token == "" {
		return nil, salt.WithHint(errors.New("there is no token"), "set nagios_nrdp.token in the minion's configuration")
	}
	return func(ctx context.Context, r Return) error {
		report, err := xml.Marshal(checkOf(r, h.setting(value.Str(r.Fun), "nagios_nrdp.service"), h.setting("1", "nagios_nrdp.checktype")))
		if err != nil {
			return err
		}
		form := url.Values{"token": {token}, "cmd": {"submitcheck"}, "XMLDATA": {xml.Header + string(report)}}
		q, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
		if err != nil {
			return err
		}
		q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		answer, err := poster.Do(q)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		return nrdpVerdict(answer)
	}, nil
}

// checkOf converts a return to a check result. A return of cmd.run_all has the code and the output
// of a plugin; for other functions the return code counts.
func checkOf(r Return, service, checkType string) checkResults {
	c := checkResult{Type: "service", CheckType: checkType, Host: string(r.ID), Service: service, State: state(r.Retcode), Output: value.Str(r.Return)}
	plain, _ := value.Plain(r.Return)
	if all, ok := plain.(map[string]any); ok {
		if out, ok := all["stdout"].(string); ok {
			c.Output = out
		}
		if code, ok := all["retcode"]; ok {
			c.State = state(code)
		}
	}
	if len(c.Output) > maxCheckOutput {
		c.Output = c.Output[:maxCheckOutput]
	}
	c.Output = strings.ToValidUTF8(c.Output, "?")
	return checkResults{Result: c}
}

// maxCheckOutput is the maximum size of an output in Nagios, in bytes.
const maxCheckOutput = 8 << 10

// state returns a state of Nagios: 0 ok, 1 warning, 2 critical, 3 unknown, also for any other code.
func state(code any) int {
	n, ok := code.(int64)
	if i, isInt := code.(int); isInt {
		n, ok = int64(i), true
	}
	if !ok || n < 0 || n > 3 {
		return 3
	}
	return int(n)
}

// nrdpVerdict reads the answer: a server that refuses says so with HTTP status 200.
func nrdpVerdict(answer *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server answered %s", answer.Status)
	}
	var result struct {
		XMLName xml.Name `xml:"result"`
		Status  *int     `xml:"status"`
		Message string   `xml:"message"`
	}
	if err := xml.Unmarshal(text, &result); err != nil {
		return fmt.Errorf("the answer is not that of NRDP: %w", err)
	}
	if result.Status == nil {
		return errors.New("the answer is not that of NRDP: it has no status")
	}
	if *result.Status != 0 {
		return fmt.Errorf("the server refused the check: %s", result.Message)
	}
	return nil
}
