package openai

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	goparser "go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// declaredCodes returns the constants of type Code in the order of the source.
func declaredCodes(t *testing.T) []Code {
	t.Helper()
	file, err := goparser.ParseFile(token.NewFileSet(), "error.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); ok && typ.Name == "Code" {
			for _, v := range spec.Values {
				s, err := strconv.Unquote(v.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				codes = append(codes, Code(s))
			}
		}
		return true
	})
	return codes
}

func TestErrorTable(t *testing.T) {
	codes := declaredCodes(t)
	if len(codes) < 20 {
		t.Fatalf("found only %d codes", len(codes))
	}
	known := map[Code]bool{}
	var got strings.Builder
	for _, c := range codes {
		if known[c] {
			t.Errorf("%s is declared twice", c)
		}
		known[c] = true
		if _, ok := errorTable[c]; !ok {
			t.Errorf("%s is not in the table", c)
		}
		e := &Error{Code: c, Param: "p", Message: "it \"failed\""}
		fmt.Fprintf(&got, "%s: %d", c, e.HTTPStatus())
		if e.Retry() {
			got.WriteString(", retry")
		}
		fmt.Fprintf(&got, "\n%s\n%s\n\n", e.AppendJSON(nil, FormatOpenAI), e.AppendJSON(nil, FormatDynamo))
	}
	for c := range errorTable {
		if !known[c] {
			t.Errorf("%s is in the table but not declared", c)
		}
	}
	const golden = "testdata/errors.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
}

func TestErrorBodies(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    Error
		format ErrorFormat
		want   string
	}{
		{"no param", Error{Code: CodeInternal, Message: "m"}, FormatOpenAI,
			`{"error":{"message":"m","type":"server_error","param":null,"code":"internal_error"}}`},
		{"message is escaped", Error{Code: CodeInternal, Message: "a\"\n\xff"}, FormatOpenAI,
			`{"error":{"message":"a\"\n�","type":"server_error","param":null,"code":"internal_error"}}`},
		{"model not found", Error{Code: CodeModelNotFound, Param: "model", Message: "The model `x` does not exist"}, FormatDynamo,
			`{"message":"Model not found","type":"Not Found","code":404}`},
		{"validation", Error{Code: CodeInvalidValue, Message: "Frequency penalty must be between -2 and 2, got -3"}, FormatDynamo,
			`{"message":"Validation: Frequency penalty must be between -2 and 2, got -3","type":"Bad Request","code":400}`},
		{"overload status", Error{Code: CodeOverloaded, Message: "m", Status: 529}, FormatDynamo,
			`{"message":"ResourceExhausted: All workers are busy, please retry later","type":"UnknownError","code":529}`},
		{"client closed", Error{Code: CodeClientClosed, Message: "m"}, FormatDynamo,
			`{"message":"m","type":"Client Closed Request","code":499}`},
		{"unknown code", Error{Code: "new", Message: "m"}, FormatOpenAI,
			`{"error":{"message":"m","type":"server_error","param":null,"code":"new"}}`},
		{"unknown code, flat", Error{Code: "new", Message: "m"}, FormatDynamo,
			`{"message":"m","type":"Internal Server Error","code":500}`},
		{"engine's own body", Error{Code: CodeEngineError, Message: "m", Raw: []byte(`{"error":{"message":"x"}}`)}, FormatOpenAI,
			`{"error":{"message":"x"}}`},
		{"engine's own body, flat", Error{Code: CodeEngineError, Message: "m", Raw: []byte(`{"error":{"message":"x"}}`)}, FormatDynamo,
			`{"message":"m","type":"Bad Gateway","code":502}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := tc.err.AppendJSON(nil, tc.format)
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !json.Valid(got) {
				t.Error("not JSON")
			}
		})
	}
}

func TestErrorEvent(t *testing.T) {
	e := &Error{Code: CodeEngineError, Message: "the engine\nwent away"}
	for format, want := range map[ErrorFormat]string{
		FormatOpenAI: `data: {"error":{"message":"the engine\nwent away","type":"server_error","param":null,"code":"engine_error"}}` + "\n\ndata: [DONE]\n\n",
		FormatDynamo: "event: error\n: the engine went away\n\n",
	} {
		if got := string(e.AppendEvent(nil, format)); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	e.Raw = []byte("{\n \"error\": {\"message\": \"x\"}\n}\n")
	events := scanAll(t, strings.NewReader(string(e.AppendEvent(nil, FormatOpenAI))), 256, 256)
	if len(events) != 2 || *events[0].Data != string(e.Raw) || *events[1].Data != "[DONE]" {
		t.Errorf("a body of several lines was read back as %v", events)
	}
}

func TestErrorChain(t *testing.T) {
	cause := errors.New("cause")
	err := fmt.Errorf("open: %w", &Error{Code: CodeEngineError, Message: "m", Err: cause})
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, cause) || err.Error() != "open: m" {
		t.Errorf("%v does not unwrap", err)
	}
	if s := string(e.AppendJSON(nil, FormatOpenAI)) + string(e.AppendEvent(nil, FormatDynamo)); strings.Contains(s, "cause") {
		t.Errorf("the cause was sent: %s", s)
	}
}
