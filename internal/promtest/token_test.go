package promtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stator-ai/stator/internal/monitor"
)

// TestToken scrapes a server with keys, with the lines of the configuration that are
// comments until there are keys, and without.
func TestToken(t *testing.T) {
	t.Parallel()
	const key = "key-of-the-operators"
	srv := startWith(t, []string{"STATOR_API_KEY=" + key}, "serve", "--sim", "1")
	with := func(change func(string) string) *prometheus {
		at := filepath.Join(unpack(t, monitor.Options{Stator: []string{srv.addr}, Interval: time.Second}), "prometheus", "prometheus.yml")
		config, err := os.ReadFile(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(change(string(config))), 0o600); err != nil {
			t.Fatal(err)
		}
		return scrapeFrom(t, at)
	}
	locked := with(func(config string) string { return config })
	open := with(func(config string) string { return authorized(t, config, key) })

	open.scraped(t, 1, 2)
	if _, n := open.sum(t, "stator_workers", time.Now()); n == 0 {
		t.Error("with a key: no series")
	}
	eventually(t, "a scrape without a key is refused", func() string {
		if up := locked.ask(t, "up", time.Now()); len(up) != 1 || up[0].last() != 0 {
			return fmt.Sprint(up)
		}
		return ""
	})
	if _, n := locked.sum(t, "stator_workers", time.Now()); n != 0 {
		t.Errorf("without a key: %d series", n)
	}
	locked.alarmed(t, "StatorDown", srv.addr)
}

var keyFile = regexp.MustCompile(`(credentials_file:) \S+`)

// authorized takes the comment from the lines with the key, and has it read from a file.
func authorized(t *testing.T, config, key string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out := uncomment(config, "authorization", "credentials_file")
	if out == config || len(keyFile.FindAllString(out, -1)) != 1 {
		t.Fatalf("there is no authorization to be had:\n%s", config)
	}
	return keyFile.ReplaceAllString(out, "$1 "+file)
}

// uncomment makes settings of those that are comments: the ones that are named, or all.
func uncomment(config string, keys ...string) string {
	names := `\w+`
	if len(keys) > 0 {
		names = strings.Join(keys, "|")
	}
	return regexp.MustCompile(`(?m)^( *)# ( *(?:- )?(?:`+names+`):(?: .*)?)$`).ReplaceAllString(config, "$1$2")
}
