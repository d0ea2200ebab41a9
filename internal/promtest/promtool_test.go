package promtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stator-ai/stator/internal/monitor"
)

// deployed is where the files of internal/monitor are kept.
const deployed = "../../deploy/prometheus"

// TestPromtool has Prometheus' own tool look at the files as they are deployed, and run
// the tests of the alerts.
func TestPromtool(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "config", filepath.Join(deployed, "prometheus.yml"))
	promtool(t, "check", "rules", filepath.Join(deployed, "rules.yml"), filepath.Join(deployed, "alerts.yml"))

	// What is a comment in the configuration is well-formed, too.
	config, err := os.ReadFile(filepath.Join(deployed, "prometheus.yml"))
	if err != nil {
		t.Fatal(err)
	}
	whole := filepath.Join(unpack(t, monitor.Options{}), "prometheus", "prometheus.yml")
	text := uncomment(authorized(t, string(config), "key"))
	if strings.Contains(text, "# - ") || strings.Count(text, "job_name:") != 5 {
		t.Errorf("expected all five jobs:\n%s", text)
	}
	if err := os.WriteFile(whole, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "config", whole)

	tests, err := filepath.Glob("../monitor/testdata/*.yml")
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests of the rules: %v", err)
	}
	for _, file := range tests {
		promtool(t, "test", "rules", file)
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir(t), "bin", "promtool"), args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %q: %v\n%s", args, err, out)
	}
}
