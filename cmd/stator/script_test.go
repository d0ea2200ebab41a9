package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"stator": main})
}

// TestScripts runs the program from outside. Besides testscript's own commands
// there are:
//
//	start NAME [VAR=value…] stator ARG…   run it; once it has said where it listens,
//	                                      $NAME is its URL and NAME.out what it printed
//	expect NAME REGEXP                    wait for a line on its standard error
//	signal NAME TERM|INT|HUP
//	await NAME CODE                       wait for its end; writes NAME.out, NAME.err
//	fetch [-H HEADER]… URL [BODY]         GET, or POST with a body; status and body to stdout
//	open NAME URL BODY                    POST, wait for the first line of the answer
//	rest NAME                             the rest of that answer, to stdout
//	certificate FILE                      write a new self-signed certificate and its key
//	address VAR URL                       put the host:port of a URL into $VAR
//	port VAR URL                          put its port there
//	free VAR…                             put ports there that nobody listens on; if somebody
//	                                      does once they are used, start takes others
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("GORACE", gorace)
			env.Values[processes{}] = make(map[string]*process)
			env.Values[responses{}] = make(map[string]*http.Response)
			env.Values[ports{}] = make(map[string]string)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"start": plain(start), "expect": plain(expect), "signal": plain(sendSignal), "await": plain(await),
			"fetch": plain(fetch), "open": plain(open), "rest": plain(rest), "address": plain(address), "port": plain(portOf), "free": plain(free), "certificate": plain(certificate),
		},
	})
}

// gorace keeps a program built with -race from sleeping a second before it exits.
const gorace = "atexit_sleep_ms=0"

// patience is how long a script waits for what must happen.
const patience = 30 * time.Second

type (
	processes struct{} // key of map[string]*process
	responses struct{} // key of map[string]*http.Response
	ports     struct{} // key of map[string]string, by variable
)

func plain(f func(ts *testscript.TestScript, args []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("! is not supported here")
		}
		f(ts, args)
	}
}

// process is a running program.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr watched
	exited         chan struct{}
	err            error // of Wait, once exited
}

func start(ts *testscript.TestScript, args []string) {
	name, args := args[0], args[1:]
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/no-home", "GORACE=" + gorace}
	for len(args) > 0 && strings.Contains(args[0], "=") {
		env, args = append(env, args[0]), args[1:]
	}
	p := launch(ts, env, args)
	// The curl line is the last thing said at the start.
	started, taken := regexp.MustCompile(`(?m)^  curl .*\n\n`), regexp.MustCompile(`address (is|already) in use`)
	for tries := 0; !p.stdout.wait(started, p.exited); tries++ {
		if tries == 5 || !taken.MatchString(p.stderr.String()) || !refree(ts, args) {
			ts.Fatalf("%s did not start\nstdout:\n%s\nstderr:\n%s", name, p.stdout.String(), p.stderr.String())
		}
		p = launch(ts, env, args)
	}
	ts.Value(processes{}).(map[string]*process)[name] = p
	url := regexp.MustCompile(`listening on (\S+)`).FindStringSubmatch(p.stdout.String())
	if url == nil {
		ts.Fatalf("%s does not say where it listens:\n%s", name, p.stdout.String())
	}
	ts.Setenv(name, url[1])
	ts.Check(os.WriteFile(ts.MkAbs(name+".out"), []byte(p.stdout.String()), 0o666))
}

// launch runs a program until the script ends.
func launch(ts *testscript.TestScript, env, args []string) *process {
	p := &process{cmd: exec.Command(args[0], args[1:]...), exited: make(chan struct{})}
	p.cmd.Env, p.cmd.Dir = env, ts.MkAbs(".")
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	ts.Check(p.cmd.Start())
	go func() { p.err = p.cmd.Wait(); close(p.exited) }()
	ts.Defer(func() {
		_ = p.cmd.Process.Kill() // an error means that it has ended
		<-p.exited
	})
	return p
}

func lookup(ts *testscript.TestScript, name string) *process {
	p := ts.Value(processes{}).(map[string]*process)[name]
	if p == nil {
		ts.Fatalf("no process %s", name)
	}
	return p
}

func expect(ts *testscript.TestScript, args []string) {
	p := lookup(ts, args[0])
	if !p.stderr.wait(regexp.MustCompile("(?m)"+args[1]), p.exited) {
		ts.Fatalf("%s did not print %s\nstderr:\n%s", args[0], args[1], p.stderr.String())
	}
}

func sendSignal(ts *testscript.TestScript, args []string) {
	sig := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": os.Interrupt, "HUP": syscall.SIGHUP}[args[1]]
	ts.Check(lookup(ts, args[0]).cmd.Process.Signal(sig))
}

func await(ts *testscript.TestScript, args []string) {
	p := lookup(ts, args[0])
	select {
	case <-p.exited:
	case <-time.After(patience):
		ts.Fatalf("%s does not end\nstderr:\n%s", args[0], p.stderr.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".out"), []byte(p.stdout.String()), 0o666))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]+".err"), []byte(p.stderr.String()), 0o666))
	want, err := strconv.Atoi(args[1])
	ts.Check(err)
	if got := p.cmd.ProcessState.ExitCode(); got != want {
		ts.Fatalf("%s ended with code %d (%v), want %d\nstderr:\n%s", args[0], got, p.err, want, p.stderr.String())
	}
}

var client = &http.Client{
	Timeout:   patience,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true},
}

func request(ts *testscript.TestScript, args []string) *http.Response {
	header := make(http.Header)
	for len(args) > 1 && args[0] == "-H" {
		name, value, _ := strings.Cut(args[1], ": ")
		header.Add(name, value)
		args = args[2:]
	}
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if len(args) == 2 {
		method, body = http.MethodPost, strings.NewReader(args[1])
		header.Set("Content-Type", "application/json")
	}
	req, err := http.NewRequest(method, args[0], body)
	ts.Check(err)
	req.Header = header
	resp, err := client.Do(req)
	ts.Check(err)
	return resp
}

func fetch(ts *testscript.TestScript, args []string) {
	resp := request(ts, args)
	defer resp.Body.Close()
	_, err := io.WriteString(ts.Stdout(), resp.Status+"\n")
	ts.Check(err)
	_, err = io.Copy(ts.Stdout(), resp.Body)
	ts.Check(err)
}

func open(ts *testscript.TestScript, args []string) {
	resp := request(ts, args[1:])
	ts.Defer(func() { resp.Body.Close() })
	line := make([]byte, 1)
	for line[0] != '\n' {
		_, err := io.ReadFull(resp.Body, line)
		ts.Check(err)
	}
	ts.Value(responses{}).(map[string]*http.Response)[args[0]] = resp
}

func rest(ts *testscript.TestScript, args []string) {
	_, err := io.Copy(ts.Stdout(), ts.Value(responses{}).(map[string]*http.Response)[args[0]].Body)
	ts.Check(err)
}

// watched is a writer that can be waited on.
type watched struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	waiters []chan struct{}
}

func (w *watched) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	for _, c := range w.waiters {
		close(c)
	}
	w.waiters = nil
	return len(p), nil
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}

// wait reports whether re matches what was written, before the program ends or
// patience does.
func (w *watched) wait(re *regexp.Regexp, exited <-chan struct{}) bool {
	deadline := time.After(patience)
	for {
		w.mu.Lock()
		if re.Match(w.buf.Bytes()) {
			w.mu.Unlock()
			return true
		}
		more := make(chan struct{})
		w.waiters = append(w.waiters, more)
		w.mu.Unlock()
		select {
		case <-more:
		case <-exited:
			return re.MatchString(w.String())
		case <-deadline:
			return false
		}
	}
}

// TestRunExitCodes checks the codes that scripts cannot tell apart.
func TestRunExitCodes(t *testing.T) {
	for _, tt := range []struct {
		args string
		want int
	}{
		{"version", exitOK},
		{"help", exitOK},
		{"serve --help", exitOK},
		{"completion bash", exitOK},
		{"", exitOK},
		{"config", exitOK},
		{"config check /does/not/exist.yaml", exitFailure},
		{"serve --sim 1 --router-mode nope", exitFailure},
		{"serve", exitUsage},
		{"serve --no-such-flag", exitUsage},
		{"serve --sim x", exitUsage},
		{"serve extra", exitUsage},
		{"serve --listen :1 --http-port 1", exitUsage},
		{"config chekc", exitUsage},
		{"config check a b", exitUsage},
		{"config new-key --name=", exitUsage},
		{"man", exitUsage},
		{"nonsense", exitUsage},
	} {
		t.Run(tt.args, func(t *testing.T) {
			for _, name := range []string{"STATOR_CONFIG", "STATOR_LISTEN", "STATOR_ADMIN_LISTEN", "STATOR_API_KEY"} {
				t.Setenv(name, "")
			}
			var stdout, stderr bytes.Buffer
			got := run(strings.Fields(tt.args), &stdout, &stderr)
			if got != tt.want {
				t.Errorf("code %d, want %d\nstdout:\n%s\nstderr:\n%s", got, tt.want, &stdout, &stderr)
			}
			if quiet := stderr.Len() == 0; quiet != (tt.want == exitOK) {
				t.Errorf("code %d with this on standard error:\n%s", got, &stderr)
			}
		})
	}
}

func TestListenError(t *testing.T) {
	other := errors.New("tls: no certificate")
	if got := listenError(other, nil); got != other {
		t.Errorf("listenError(%v) = %v", other, got)
	}
}

func address(ts *testscript.TestScript, args []string) {
	u, err := url.Parse(args[1])
	ts.Check(err)
	ts.Setenv(args[0], u.Host)
}

func portOf(ts *testscript.TestScript, args []string) {
	u, err := url.Parse(args[1])
	ts.Check(err)
	ts.Setenv(args[0], u.Port())
}

// free finds ports. Somebody else may take one before a program does; see refree.
func free(ts *testscript.TestScript, args []string) {
	for _, name := range args {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		ts.Check(err)
		defer ln.Close() // all at the end, so that they differ
		port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
		ts.Value(ports{}).(map[string]string)[name] = port
		ts.Setenv(name, port)
	}
}

// refree puts other ports in the place of those in args that free found, there and in the
// variables. It reports whether there are any.
func refree(ts *testscript.TestScript, args []string) bool {
	found := ts.Value(ports{}).(map[string]string)
	var names, taken []string
	for name, port := range found {
		if slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, port) }) {
			names, taken = append(names, name), append(taken, port)
		}
	}
	free(ts, names)
	for i, name := range names {
		for j := range args {
			args[j] = strings.ReplaceAll(args[j], taken[i], found[name])
		}
	}
	return len(names) > 0
}

func certificate(ts *testscript.TestScript, args []string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	ts.Check(err)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), text, 0o600))
}
