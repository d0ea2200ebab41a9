// Package vllmtest runs vLLM's own server for tests: the real scheduler, block manager,
// event publisher and API over a model of two thin layers with random weights, on a
// processor.
//
// scripts/vllm/setup.sh installs it. The directory that it prints has to be in the
// environment as STATOR_VLLM; without it tests are skipped. A server takes four
// gigabytes of memory and up to two minutes to start, so that tests share one. One of two
// ranks takes twice that.
package vllmtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
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

// ContextLength is how many tokens a request may have.
const ContextLength = 4096

// patience bounds how long a server may take to be there, on a machine that has other
// things to do.
const patience = 8 * time.Minute

// Dir returns the directory with vLLM. It skips the test if there is none.
func Dir(tb testing.TB) string {
	tb.Helper()
	dir := os.Getenv("STATOR_VLLM")
	if dir == "" {
		tb.Skip("not tried with a real vLLM: set STATOR_VLLM=$(scripts/vllm/setup.sh)")
	}
	return dir
}

// MaxRanks is how many ranks a server may have: their sockets are at ports one after
// another, of which so many are free.
const MaxRanks = 2

// Instance is a server, which ends with the test that started it.
type Instance struct {
	URL    string // without a slash at its end
	Events string // host:port of the socket of rank 0 that publishes events
	Replay string // host:port of the one that repeats them
}

// After returns the address n ports after another.
func After(addr string, n int) string {
	a := netip.MustParseAddrPort(addr)
	return netip.AddrPortFrom(a.Addr(), a.Port()+uint16(n)).String()
}

// Start starts a server with these arguments besides its model, name, addresses and
// events, and waits until it is there. It runs on the first processor unless
// VLLM_CPU_OMP_THREADS_BIND says otherwise. What the server said is shown when the test
// fails. It skips the test where vLLM is not installed.
func Start(tb testing.TB, args ...string) *Instance {
	tb.Helper()
	dir, tmp := Dir(tb), tb.TempDir()
	model := filepath.Join(tmp, "model")
	if err := writeModel(model, filepath.Join(dir, "tokenizer")); err != nil {
		tb.Fatalf("vllm: %v", err)
	}
	ports := freePorts(tb, 3)
	local := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])) }
	inst := &Instance{URL: "http://" + local(0), Events: local(1), Replay: local(2)}
	events, err := json.Marshal(map[string]any{
		"enable_kv_cache_events": true, "publisher": "zmq",
		"endpoint":        fmt.Sprintf("tcp://*:%d", ports[1]),
		"replay_endpoint": fmt.Sprintf("tcp://*:%d", ports[2]),
	})
	if err != nil {
		tb.Fatal(err)
	}
	log, err := os.Create(filepath.Join(tmp, "vllm.log"))
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(dir, "venv", "bin", "vllm"), append([]string{
		"serve", model, "--served-model-name", Model, "--host", "127.0.0.1", "--port", strconv.Itoa(ports[0]),
		"--load-format", "dummy", "--enforce-eager", "--max-model-len", strconv.Itoa(ContextLength),
		"--kv-events-config", string(events), "--enable-prompt-tokens-details",
	}, args...)...)
	cmd.Env = append(append([]string{"VLLM_CPU_OMP_THREADS_BIND=0"}, os.Environ()...),
		"VLLM_CPU_KVCACHE_SPACE=1", "OMP_NUM_THREADS=1", // one gigabyte, one thread
		"HF_HUB_OFFLINE=1", "VLLM_NO_USAGE_STATS=1",
		"XDG_CACHE_HOME="+tmp, "XDG_CONFIG_HOME="+tmp,
	)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attached()
	if err := cmd.Start(); err != nil {
		tb.Fatalf("vllm: %v", err)
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	tb.Cleanup(func() {
		// The server has processes of its own; all are in one group.
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
		if tb.Failed() {
			tb.Logf("%s said at last:\n%s", inst.URL, tail(log.Name(), 60))
		}
		log.Close()
	})
	if err := wait(inst.URL+"/health", exited); err != nil {
		tb.Fatalf("vllm: %v", err)
	}
	return inst
}

// wait returns when url is answered, or when that will not be.
func wait(url string, exited <-chan struct{}) error {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.After(patience)
	for {
		last := "no answer"
		resp, err := client.Get(url)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if last = resp.Status; resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-exited:
			return fmt.Errorf("the server ended before it was there")
		case <-deadline:
			return fmt.Errorf("the server is not there after %v: %s", patience, last)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// freePorts returns ports that nobody listens on, nor on those after each that further
// ranks use. They are below those that systems give away, which may be given away in the
// minutes until the server takes its own.
func freePorts(tb testing.TB, n int) []int {
	tb.Helper()
	const lowest, highest = 20000, 30000
	var ports []int
	for attempt := 0; len(ports) < n; attempt++ {
		port := lowest + rand.IntN(highest-lowest)
		row, err := listen(port, MaxRanks)
		for _, ln := range row {
			defer ln.Close() // at the end, so that no port comes twice
		}
		switch {
		case err == nil:
			ports = append(ports, port)
		case attempt > 100:
			tb.Fatal(err)
		}
	}
	return ports
}

// listen listens on n ports from one on, or on fewer with an error.
func listen(port, n int) (row []net.Listener, err error) {
	for i := range n {
		ln, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port+i)))
		if err != nil {
			return row, err
		}
		row = append(row, ln)
	}
	return row, nil
}

// tail returns the last lines of a file.
func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprint(err)
	}
	lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
