package nvext

import (
	"encoding/json"
	"errors"
	"testing"
)

var scanSamples = []string{
	``, ` `, `null`, ` null `, `nul`, `nulll`, `true`, `tru`, `false`, `fals`, `x`, `nan`,
	`0`, `-0`, `-`, `00`, `01`, `1.`, `.1`, `1.5`, `1e`, `1e+`, `1e5`, `1E-5`, `+1`, `-1.2e3`, `1 2`,
	`""`, `"`, `"a`, `"\"`, `"\""`, `"\u12"`, `"\u12aF"`, `"\u12ag"`, `"\x"`, `"\/\b\f\n\r\t\\"`, "\"\n\"", "\"\x00\"", "\"\xff\"",
	`[]`, `[`, `]`, `[1`, `[1,`, `[1,]`, `[,1]`, `[1 2]`, `[ 1 , 2 ]`, `[[]]`, `[}`,
	`{}`, `{`, `}`, `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{,}`, `{a:1}`, `{1:1}`, `{"a" : 1 , "b":[{}]}`, `{"a":1]`, `{"a":1 "b":2}`,
	"\ufeff{}", "{}\x00", "\x00",
}

func checkScan(t *testing.T, raw []byte) {
	t.Helper()
	_, err := trimValue(raw)
	if errors.Is(err, ErrTooDeep) {
		return
	}
	if valid := json.Valid(raw); valid != (err == nil) {
		t.Errorf("%q: scan says %v, json.Valid says %v", raw, err, valid)
	}
}

func TestScan(t *testing.T) {
	for _, s := range scanSamples {
		checkScan(t, []byte(s))
	}
}

func FuzzScan(f *testing.F) {
	for _, s := range scanSamples {
		f.Add([]byte(s))
	}
	f.Fuzz(checkScan)
}
