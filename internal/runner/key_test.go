package runner

import "testing"

// TestOwnKeysByPattern: the names of the master's own keys are matched as ids of minions are.
func TestOwnKeysByPattern(t *testing.T) {
	list := map[string]any{}
	if _, err := (keys{&Host{}}).withOwn(list, "[!m]*", fingerHash); err != nil || len(list) > 0 {
		t.Errorf("[!m]* matches master.pem: %v, %v", list, err)
	}
}
