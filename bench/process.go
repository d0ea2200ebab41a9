package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// readyWait bounds how long a process may take until it listens.
const readyWait = 20 * time.Second

// greeting begins the line on standard output in which the servers of this module
// say where they listen.
const greeting = "listening on http://"

// process is a server that was started for a measurement. The caller must stop
// it.
type process struct {
	name   string
	addr   string // host:port it listens on
	began  time.Time
	cmd    *exec.Cmd
	stderr tail
	exited chan struct{} // closed after the process has ended
}

// start runs a server that greets, on a port of its own choice, and waits until it
// listens.
func start(ctx context.Context, name, exe string, args ...string) (*process, error) {
	greeted := make(chan string, 1)
	p, err := launch(ctx, name, exec.Command(exe, args...), &greeter{addr: greeted})
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(readyWait)
	defer timeout.Stop()
	select {
	case p.addr = <-greeted:
		return p, nil
	case <-p.exited:
		err = errors.New("ended before it listened")
	case <-timeout.C:
		err = fmt.Errorf("did not listen within %s", readyWait)
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.stop()
	return nil, fmt.Errorf("%s: %w\n%s", name, err, p.stderr.String())
}

// startAt runs a server that listens on addr without saying so.
func startAt(ctx context.Context, name, addr, exe string, args ...string) (*process, error) {
	p, err := launch(ctx, name, exec.Command(exe, args...), nil)
	if err != nil {
		return nil, err
	}
	p.addr = addr
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-p.exited:
			err = errors.New("ended before it listened")
		case <-ctx.Done():
			err = ctx.Err()
		case <-poll.C:
			nc, dialErr := net.Dial("tcp", addr)
			if dialErr == nil {
				nc.Close()
				return p, nil
			}
			if time.Since(p.began) < readyWait {
				continue
			}
			err = dialErr
		}
		p.stop()
		return nil, fmt.Errorf("%s: %w\n%s", name, err, p.stderr.String())
	}
}

func launch(ctx context.Context, name string, cmd *exec.Cmd, stdout *greeter) (*process, error) {
	p := &process{name: name, cmd: cmd, exited: make(chan struct{})}
	if stdout != nil {
		cmd.Stdout = stdout
	}
	cmd.Stderr = &p.stderr
	p.began = time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	// An interrupted run must not leave servers behind.
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	go func() {
		cmd.Wait()
		stop()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the process at once: nothing that it could still do is measured.
func (p *process) stop() {
	p.cmd.Process.Kill()
	<-p.exited
}

// failure adds to err what the process said last, which is where the reason is
// when a server answers badly or not at all.
func (p *process) failure(err error) error {
	if said := p.stderr.String(); said != "" {
		return fmt.Errorf("%s: %w; its log ends with\n%s", p.name, err, said)
	}
	return fmt.Errorf("%s: %w", p.name, err)
}

// get asks the process for something beside what is measured and returns the answer.
func (p *process) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.addr+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, p.failure(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, p.failure(err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, p.failure(fmt.Errorf("%s: expected status 200, got %d: %s", path, resp.StatusCode, bytes.TrimSpace(body)))
	}
	return body, nil
}

// greeter is a standard output that looks for the greeting and drops the rest.
type greeter struct {
	addr chan<- string // receives one address; has room for it
	seen []byte
	done bool
}

func (g *greeter) Write(b []byte) (int, error) {
	if g.done {
		return len(b), nil
	}
	g.seen = append(g.seen, b...)
	for {
		line, rest, whole := bytes.Cut(g.seen, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		g.seen = rest
		if addr, ok := strings.CutPrefix(string(line), greeting); ok {
			g.addr <- addr
			g.done, g.seen = true, nil
			return len(b), nil
		}
	}
}

// tail is a standard error that keeps its end. Safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const keep = 4 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if extra := len(t.buf) - keep; extra > 0 {
		t.buf = append(t.buf[:0], t.buf[extra:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}

// build compiles the stator command into dir and returns its path.
func build(ctx context.Context, dir string) (string, error) {
	exe := filepath.Join(dir, "stator")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", exe, "github.com/stator-ai/stator/cmd/stator")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build stator: %w\n%s", err, out)
	}
	return exe, nil
}

// freePort returns a loopback address that nothing listens on.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
