package promtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// binary is the program under test, which TestMain builds.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the binary once for all tests.
func run(m *testing.M) int {
	if os.Getenv("STATOR_PROMETHEUS") == "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "promtest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "stator")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/stator").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

var greeting = regexp.MustCompile(`listening on http://(\S+)`)

// server is a running command of the binary that listens.
type server struct {
	*process
	addr string
}

func (s *server) url() string { return "http://" + s.addr }

// start runs a command that listens on a port of its own choice.
func start(t *testing.T, args ...string) *server {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith is start with more in the environment.
func startWith(t *testing.T, env []string, args ...string) *server {
	t.Helper()
	s, err := tryStart(t, env, args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tryStart(t *testing.T, env []string, args ...string) (*server, error) {
	t.Helper()
	dir(t) // or skip
	s := &server{process: launch(t, binary, env, append(args, "--listen", "127.0.0.1:0")...)}
	found, err := s.said(greeting)
	if err != nil {
		return nil, err
	}
	s.addr = found[1]
	return s, nil
}

// startOn is start for a command that has to be told ports. Should somebody else take one
// of them meanwhile, it tries others.
func startOn(t *testing.T, ports int, args func(ports []int) []string) (*server, []int) {
	t.Helper()
	for try := 0; ; try++ {
		free := freePorts(t, ports)
		s, err := tryStart(t, nil, args(free)...)
		if err == nil {
			return s, free
		}
		if try == 5 || !strings.Contains(err.Error(), "in use") {
			t.Fatal(err)
		}
	}
}

// freePorts returns ports that nobody listens on at the moment.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var out []int
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close() // all at the end, so that they differ
		out = append(out, ln.Addr().(*net.TCPAddr).Port)
	}
	return out
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
