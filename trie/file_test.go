package trie

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

func TestSave(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "prediction_trie.json")
	tr := mustParse(t, string(testdata(t, "demo.json")))

	if err := tr.Save(file); err != nil {
		t.Fatal(err)
	}
	checkMode(t, file, 0o644)
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("something longer than what was there before"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := tr.Save(file); err != nil {
		t.Fatal(err)
	}
	checkMode(t, file, 0o640)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(data) != string(testdata(t, "demo.json")) {
		t.Errorf("file =\n%s", data)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, want the trie alone (%v)", files, err)
	}
}

func checkMode(t *testing.T, file string, want os.FileMode) {
	t.Helper()
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Mode().Perm(); got != want {
		t.Errorf("mode = %o, want %o", got, want)
	}
}

// Where the file cannot be put in place, what was there stays and nothing is left behind.
func TestSaveFails(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(taken, "by", "a", "directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	err := new(Trie).Save(taken)
	if err == nil || !strings.Contains(err.Error(), "save "+taken) {
		t.Errorf("error = %v, want one that names the file", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, want only what was there (%v)", files, err)
	}
	if err := new(Trie).Save(filepath.Join(dir, "no", "such", "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want %v", err, os.ErrNotExist)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(filepath.Join(dir, "none.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want %v", err, os.ErrNotExist)
	}
	bad := filepath.Join(dir, "bad.json")
	if err := os.WriteFile(bad, []byte("{\n\"root\": 1}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(bad); err == nil || err.Error() != bad+": line 2: root: expected an object, got a number" {
		t.Errorf("error = %v", err)
	}
}

func TestLoadTooLong(t *testing.T) {
	long := filepath.Join(t.TempDir(), "long.json")
	if err := os.WriteFile(long, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(long, MaxFileBytes+1); err != nil {
		t.Skip(err)
	}
	if _, err := Load(long); err == nil || err.Error() != long+": expected at most 1 GiB" {
		t.Errorf("error = %v", err)
	}
}

func TestRead(t *testing.T) {
	want := testdata(t, "demo.json")
	tr, err := Read(iotest.HalfReader(strings.NewReader(string(want))))
	if err != nil {
		t.Fatal(err)
	}
	if got := tr.AppendJSON(nil); string(got) != string(want) {
		t.Errorf("read\n%s", got)
	}
	if _, err := parse(&fileLimit{r: spaces{}, left: 1 << 20}); err == nil || err.Error() != "line 1: expected at most 1 GiB" {
		t.Errorf("without an end: error = %v", err)
	}
	_, err = parse(&fileLimit{r: strings.NewReader(string(want)), left: int64(len(want))})
	if err != nil {
		t.Errorf("as long as it may be: %v", err)
	}
	_, err = parse(&fileLimit{r: strings.NewReader(string(want)), left: int64(len(want)) - 1})
	if !errors.Is(err, errTooLong) {
		t.Errorf("one byte longer than it may be: %v", err)
	}
}

// spaces has no end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) { return copy(p, blank), nil }

var blank = strings.Repeat(" ", 64<<10)
