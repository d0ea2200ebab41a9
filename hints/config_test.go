package hints

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	yaml "go.yaml.in/yaml/v3"
)

// parse reads YAML, and the same as JSON, which must not differ.
func parse(t *testing.T, text string) (Config, error) {
	t.Helper()
	var fromYAML, fromJSON Config
	err := yaml.Unmarshal([]byte(text), &fromYAML)
	var m map[string]any
	if e := yaml.Unmarshal([]byte(text), &m); e != nil {
		t.Fatal(e)
	}
	data, e := json.Marshal(m)
	if e != nil {
		t.Fatal(e)
	}
	errJSON := json.Unmarshal(data, &fromJSON)
	same := func(err error) string { return strings.ReplaceAll(fmt.Sprint(err), ".0", "") } // which is lost on the way to JSON
	if same(err) != same(errJSON) || fromYAML != fromJSON {
		t.Errorf("YAML gives %+v, %v\nJSON gives %+v, %v", fromYAML, err, fromJSON, errJSON)
	}
	return fromYAML, err
}

func TestC1Defaults(t *testing.T) {
	got, err := parse(t, "model_name: m\nmax_retries: 10\n")
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Enable: false, PrefixIDTemplate: "nat-dynamo-{uuid}",
		TotalRequests: 10, OutputTokens: 512, InterArrivalMS: 250,
		RequestTimeout: 600 * time.Second, TriePath: "",
		CachePin: "ephemeral", CacheMode: "always", MaxSensitivity: 1000,
		VerifySSL: true, Polarity: "direct", Carrier: "nat", FailurePolicy: "open",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// accepts and refuses check single settings.
func accepts(t *testing.T, text string) Config {
	t.Helper()
	c, err := parse(t, text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
	}
	return c
}

func refuses(t *testing.T, text string) {
	t.Helper()
	_, err := parse(t, text)
	field, _, _ := strings.Cut(text, ":")
	if err == nil {
		t.Errorf("%s: accepted", text)
	} else if !strings.Contains(err.Error(), field+": expected ") {
		t.Errorf("%s: the error does not name the field and what it expects: %v", text, err)
	}
}

func TestC2TotalRequests(t *testing.T) {
	for _, n := range []int{1, 50} {
		if c := accepts(t, fmt.Sprintf("nvext_prefix_total_requests: %d", n)); c.TotalRequests != n {
			t.Errorf("got %d, want %d", c.TotalRequests, n)
		}
	}
	for _, v := range []string{"0", "51", "-1", "LOW", "2.5", "true", "null"} {
		refuses(t, "nvext_prefix_total_requests: "+v)
	}
}

func TestC3OSLAndIAT(t *testing.T) {
	for _, field := range []string{"nvext_prefix_osl", "nvext_prefix_iat"} {
		for _, v := range []string{"0", "-5", "INVALID", `"512"`, "512.5", "true", "null", `""`} {
			refuses(t, field+": "+v)
		}
	}
}

func TestC4Categories(t *testing.T) {
	for word, want := range map[string][2]int{
		"LOW": {128, 50}, "MEDIUM": {512, 250}, "HIGH": {2048, 750}, "low": {128, 50}, "high": {2048, 750}, "Medium": {512, 250},
	} {
		c := accepts(t, "nvext_prefix_osl: "+word+"\nnvext_prefix_iat: "+word)
		if got := [2]int{c.OutputTokens, c.InterArrivalMS}; got != want {
			t.Errorf("%s: got %v, want %v", word, got, want)
		}
	}
}

func TestC5TimeoutAndMaxSensitivity(t *testing.T) {
	if c := accepts(t, "request_timeout: 1.0"); c.RequestTimeout != time.Second {
		t.Errorf("timeout %s", c.RequestTimeout)
	}
	if c := accepts(t, "request_timeout: 2"); c.RequestTimeout != 2*time.Second {
		t.Errorf("timeout %s", c.RequestTimeout)
	}
	for _, v := range []string{"0", "-1", "0.0", "1s", "null", "1e300"} {
		refuses(t, "request_timeout: "+v)
	}
	for _, n := range []int{1, 10000} {
		if c := accepts(t, fmt.Sprintf("nvext_max_sensitivity: %d", n)); c.MaxSensitivity != n {
			t.Errorf("got %d, want %d", c.MaxSensitivity, n)
		}
	}
	for _, v := range []string{"0", "-1", "99999999999"} {
		refuses(t, "nvext_max_sensitivity: "+v)
	}
	refuses(t, "nvext_prefix_iat: 3000000000") // no server's field holds it
}

func TestC6CacheControl(t *testing.T) {
	if c := accepts(t, "nvext_cache_pin_type: null"); c.CachePin != NoPin {
		t.Errorf("pin %q", c.CachePin)
	}
	if c := accepts(t, "nvext_cache_pin_type: ephemeral"); c.CachePin != Ephemeral {
		t.Errorf("pin %q", c.CachePin)
	}
	refuses(t, "nvext_cache_pin_type: invalid")
	if c := accepts(t, "nvext_cache_control_mode: first_only"); c.CacheMode != FirstOnly {
		t.Errorf("mode %q", c.CacheMode)
	}
	refuses(t, "nvext_cache_control_mode: invalid")
	refuses(t, "nvext_cache_control_mode: null")
	if c := accepts(t, "nvext_prefix_id_template: null"); c.PrefixIDTemplate != "" || c.Enable {
		t.Errorf("template %q, enabled %t", c.PrefixIDTemplate, c.Enable)
	}
}

func TestOwnSettings(t *testing.T) {
	c := accepts(t, "nvext_priority_polarity: complement\nnvext_carrier: strict\nnvext_failure_policy: closed\nnvext_compat: nat-1.5\nenable_nvext_hints: true")
	if c.Polarity != Complement || c.Carrier != Strict || c.FailurePolicy != Closed || c.Compat != NAT15 || !c.Enable {
		t.Errorf("got %+v", c)
	}
	for _, field := range []string{"nvext_priority_polarity", "nvext_carrier", "nvext_failure_policy", "nvext_compat", "enable_nvext_hints"} {
		refuses(t, field+": 7")
	}
}

func TestAliases(t *testing.T) {
	c := accepts(t, "prediction_trie_path: a.json\nmax_sensitivity: 7")
	if c.TriePath != "a.json" || c.MaxSensitivity != 7 {
		t.Errorf("got %q and %d", c.TriePath, c.MaxSensitivity)
	}
	if c := accepts(t, "prediction_trie_path: a.json\nnvext_prediction_trie_path: b.json"); c.TriePath != "b.json" {
		t.Errorf("the alias won: %q", c.TriePath)
	}
}

func TestEmptyStrings(t *testing.T) {
	c := accepts(t, `nvext_prefix_id_template: ""`+"\n"+`nvext_prediction_trie_path: ""`)
	if c.PrefixIDTemplate != "" || c.TriePath != "" {
		t.Errorf("got %+v", c)
	}
	refuses(t, `nvext_cache_pin_type: ""`)
}

func TestNumbersAreShownAsWritten(t *testing.T) {
	var c Config
	err := yaml.Unmarshal([]byte("nvext_prefix_total_requests: 10.0"), &c)
	if !strings.Contains(fmt.Sprint(err), "got 10.0") {
		t.Errorf("%v", err)
	}
}

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := parse(t, "nvext_prefix_osl: 0\nnvext_prefix_iat: x\nrequest_timeout: -1")
	for _, field := range []string{"nvext_prefix_osl", "nvext_prefix_iat", "request_timeout"} {
		if !strings.Contains(fmt.Sprint(err), field+": expected") {
			t.Errorf("%s is not in: %v", field, err)
		}
	}
}

func TestC9FieldNames(t *testing.T) {
	want := []string{
		"enable_nvext_hints", "nvext_prefix_id_template", "nvext_prefix_total_requests", "nvext_prefix_osl",
		"nvext_prefix_iat", "request_timeout", "nvext_prediction_trie_path", "nvext_cache_pin_type",
		"nvext_cache_control_mode", "nvext_max_sensitivity",
	}
	if got := FieldNames(); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, tag := range []string{"yaml", "json"} {
		var names []string
		for f := range reflect.TypeFor[fileConfig]().Fields() {
			names = append(names, f.Tag.Get(tag))
		}
		if !slices.Equal(names[:10], want) {
			t.Errorf("%s tags %q", tag, names)
		}
	}
}

func TestSearchSpaces(t *testing.T) {
	want := map[string]Space{
		"nvext_prefix_total_requests": {1, 20, 5}, "nvext_prefix_osl": {64, 4096, 64}, "nvext_prefix_iat": {10, 1000, 50},
	}
	if diff := cmp.Diff(want, SearchSpaces()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfigRoundTrip(t *testing.T) {
	for _, text := range []string{
		"{}",
		"enable_nvext_hints: true\nnvext_cache_pin_type: null\nnvext_prefix_id_template: null\nnvext_prediction_trie_path: p\nrequest_timeout: 1.5\nnvext_compat: nat-1.8\nverify_ssl: false",
	} {
		c := accepts(t, text)
		data, err := yaml.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if again := accepts(t, string(data)); again != c {
			t.Errorf("%s\nreads as %+v\nwas %+v", data, again, c)
		}
	}
}

func TestC10MissingTrie(t *testing.T) {
	dir := t.TempDir()
	corrupt := filepath.Join(dir, "corrupt.json")
	if err := os.WriteFile(corrupt, []byte(`{"root":`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "missing.json"), corrupt, dir} {
		cfg := DefaultConfig()
		cfg.Enable, cfg.TriePath = true, path
		var log strings.Builder
		client, err := NewClient(cfg, WithLogger(textLogger(&log)))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		tr := client.Transport.(*Transport)
		if tr.lookup != nil {
			t.Errorf("%s: predicts", path)
		}
		if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), path) || !strings.Contains(log.String(), "predictions=false") {
			t.Errorf("%s: log says\n%s", path, log.String())
		}
		w := new(wire)
		tr.base = w
		if got := post(t, tr, w, t.Context(), `{}`); !strings.Contains(got, `"osl":512`) {
			t.Errorf("%s: sent %s", path, got)
		}
	}
}
