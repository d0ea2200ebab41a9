// Package llamatest runs llama.cpp's server for tests: a real engine with a real
// tokenizer, template, scheduler and prefix cache, and a model so small that two of
// them fit beside a test on two cores.
//
// scripts/llama/setup.sh installs the server. The directory that it prints has to be
// in the environment as STATOR_LLAMA; without it tests are skipped. The model is
// written here: random weights, with the vocabulary and the chat template of Qwen3.
package llamatest

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Model is the name under which the model is served.
const Model = "tiny-qwen3"

// patience bounds how long a server may take to be there.
const patience = time.Minute

// Dir returns the directory with the server. It skips the test if there is none.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("STATOR_LLAMA")
	if dir == "" {
		tb.Skip("not tried with a real llama.cpp: set STATOR_LLAMA=$(scripts/llama/setup.sh)")
	}
	return dir
}

// Instance is a server, which ends with the test that started it. Its methods end the
// test when something is wrong. It is not safe for concurrent use, apart from URL.
type Instance struct {
	URL string // without a slash at its end

	tb     testing.TB
	port   int
	args   []string
	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd is no more
	log    *os.File
}

// Start starts a server with these arguments besides its model, name and address, and
// waits until the model is loaded. What the server said is shown when the test fails.
// It skips the test where no server is installed.
func Start(tb testing.TB, args ...string) *Instance {
	tb.Helper()
	i := Launch(tb, args...)
	i.Wait()
	return i
}

// Launch is Start that does not wait: the server may still be loading its model.
func Launch(tb testing.TB, args ...string) *Instance {
	tb.Helper()
	dir := Dir(tb)
	path, err := modelIn(dir)
	if err != nil {
		tb.Fatalf("llama: %v", err)
	}
	log, err := os.Create(filepath.Join(tb.TempDir(), "llama.log"))
	if err != nil {
		tb.Fatal(err)
	}
	i := &Instance{tb: tb, port: freePort(tb), log: log}
	i.URL = "http://127.0.0.1:" + strconv.Itoa(i.port)
	i.args = append([]string{
		filepath.Join(dir, "bin", "llama-server"), "-m", path, "--alias", Model,
		"--host", "127.0.0.1", "--port", strconv.Itoa(i.port), "--threads", "1",
		"--metrics", "--no-webui", "--no-warmup", "--offline",
	}, args...)
	tb.Cleanup(func() {
		i.Kill()
		if tb.Failed() {
			tb.Logf("%s said at last:\n%s", i.URL, i.tail(40))
		}
		log.Close()
	})
	i.launch()
	return i
}

// freePort returns a port that nobody listens on.
func freePort(tb testing.TB) int {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

func (i *Instance) launch() {
	i.tb.Helper()
	i.cmd = exec.Command(i.args[0], i.args[1:]...)
	i.cmd.Stdout, i.cmd.Stderr = i.log, i.log
	i.cmd.SysProcAttr = attached()
	if err := i.cmd.Start(); err != nil {
		i.tb.Fatalf("llama: %v", err)
	}
	i.exited = make(chan struct{})
	go func(cmd *exec.Cmd, exited chan struct{}) {
		cmd.Wait()
		close(exited)
	}(i.cmd, i.exited)
}

// Wait waits until the server has loaded its model.
func (i *Instance) Wait() {
	i.tb.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.After(patience)
	for {
		last := "no answer"
		resp, err := client.Get(i.URL + "/health")
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if last = resp.Status; resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-i.exited:
			i.tb.Fatalf("llama: the server ended with %v", i.cmd.ProcessState)
		case <-deadline:
			i.tb.Fatalf("llama: the server is not there after %v: %s", patience, last)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends the server at once, as a crash does. One that is no more is left alone.
func (i *Instance) Kill() {
	i.cmd.Process.Kill() // fails only where there is none
	<-i.exited
}

// Restart kills the server and starts it at the same address, with nothing in its
// cache, and waits until it has loaded its model.
func (i *Instance) Restart() {
	i.tb.Helper()
	i.Kill()
	i.launch()
	i.Wait()
}

// Pause stops the server where it is: its connections stay and nothing comes.
func (i *Instance) Pause() { i.tb.Helper(); i.signal(syscall.SIGSTOP) }

// Resume lets a server go on that was paused.
func (i *Instance) Resume() { i.tb.Helper(); i.signal(syscall.SIGCONT) }

func (i *Instance) signal(s syscall.Signal) {
	i.tb.Helper()
	if err := i.cmd.Process.Signal(s); err != nil {
		i.tb.Fatalf("llama: %v: %v", s, err)
	}
}

// tail returns the last lines of what the server said.
func (i *Instance) tail(n int) string {
	data, err := os.ReadFile(i.log.Name())
	if err != nil {
		return fmt.Sprint(err)
	}
	lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
