package promtest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// patience bounds how long something is waited for that is to come soon. The machine may
// have other things to do.
const patience = 40 * time.Second

// often is how often a condition is looked at.
const often = 20 * time.Millisecond

// eventually waits until nothing is wrong any more, which it looks at again and again.
func eventually(t *testing.T, what string, wrong func() string) {
	t.Helper()
	for start := time.Now(); ; {
		last := wrong()
		if last == "" {
			return
		}
		if time.Since(start) > patience {
			t.Fatalf("not within %v: %s: %s", patience, what, last)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(often):
		}
	}
}

// process is a program, which ends with the test that started it.
type process struct {
	name   string
	cmd    *exec.Cmd
	log    *os.File      // what it says
	exited chan struct{} // closed when it is no more
}

// launch starts a program. What it said is shown when the test fails.
func launch(t *testing.T, path string, env []string, args ...string) *process {
	t.Helper()
	name := filepath.Base(path)
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: name, cmd: exec.Command(path, args...), log: log, exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir = t.TempDir()
	p.cmd.SysProcAttr = attached()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said at last:\n%s", strings.Join(append([]string{name}, args...), " "), p.tail(30))
		}
		log.Close()
	})
	return p
}

// kill ends the program at once, as a crash does. One that is no more is left alone.
func (p *process) kill() {
	p.cmd.Process.Kill() // fails only where there is none
	<-p.exited
}

// said waits until the program says something, and returns what a pattern finds in it. The
// error has the program's last words if it ends instead.
func (p *process) said(pattern *regexp.Regexp) ([]string, error) {
	deadline := time.After(patience)
	for {
		ended := false
		select {
		case <-p.exited:
			ended = true
		case <-deadline:
			return nil, fmt.Errorf("%s did not say %s within %v", p.name, pattern, patience)
		case <-time.After(often):
		}
		text, err := os.ReadFile(p.log.Name())
		if err != nil {
			return nil, err
		}
		if m := pattern.FindSubmatch(text); m != nil {
			found := make([]string, len(m))
			for i := range m {
				found[i] = string(m[i])
			}
			return found, nil
		}
		if ended {
			return nil, fmt.Errorf("%s ended with %v: %s", p.name, p.cmd.ProcessState, p.tail(5))
		}
	}
}

// tail returns the last lines of what the program said.
func (p *process) tail(n int) string {
	data, err := os.ReadFile(p.log.Name())
	if err != nil {
		return fmt.Sprint(err)
	}
	lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
