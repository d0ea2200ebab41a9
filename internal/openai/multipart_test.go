package openai

import (
	"bytes"
	"io"
	"mime/multipart"
	"strings"
	"testing"
)

func TestFormField(t *testing.T) {
	crlf := strings.NewReplacer("\n", "\r\n")
	for _, tc := range []struct {
		name, body, want string
		ok               bool
	}{
		{"first", "--B\nContent-Disposition: form-data; name=\"model\"\n\nm\n--B--\n", "m", true},
		{"after a file", "--B\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\nContent-Type: audio/wav\n\n\x00--B0\n--BB\nxyz\n--B\ncontent-disposition:form-data;name=model\n\nm\n--B--\n", "m", true},
		{"a file of that name", "--B\nContent-Disposition: form-data; name=\"model\"; filename=\"m\"\n\nno\n--B\nContent-Disposition: form-data; name=\"model\"\n\nyes\n--B--\n", "yes", true},
		{"the first of two", "--B\nContent-Disposition: form-data; name=\"model\"\n\na\n--B\nContent-Disposition: form-data; name=\"model\"\n\nb\n--B--\n", "a", true},
		{"empty", "--B\nContent-Disposition: form-data; name=\"model\"\n\n\n--B--\n", "", true},
		{"preamble and padding", "preamble\n--B \nContent-Disposition: form-data; name=\"model\"\n\nm\n--B--", "m", true},
		{"lines in the value", "--B\nContent-Disposition: form-data; name=\"model\"\n\na\nb\n--B--", "a\nb", true},
		{"absent", "--B\nContent-Disposition: form-data; name=\"file\"\n\nm\n--B--\n", "", false},
		{"never closed", "--B\nContent-Disposition: form-data; name=\"model\"\n\nm", "", false},
		{"another boundary", "--C\nContent-Disposition: form-data; name=\"model\"\n\nm\n--C--\n", "", false},
		{"no header", "--B\n\nm\n--B--\n", "", false},
		{"nothing", "", "", false},
		{"behind the end", "--B--\n--B\nContent-Disposition: form-data; name=\"model\"\n\nm\n--B--\n", "", false},
		{"a long header", "--B\nX: " + strings.Repeat("x", maxPartHeader) + "\nContent-Disposition: form-data; name=\"model\"\n\nm\n--B--\n", "", false},
	} {
		for _, body := range []string{tc.body, crlf.Replace(tc.body)} {
			want := tc.want
			if body != tc.body {
				want = crlf.Replace(want)
			}
			start, end, ok := FormField([]byte(body), "B", "model")
			if got := body[start:end]; ok != tc.ok || got != want {
				t.Errorf("%s: %q, %v; want %q, %v", tc.name, got, ok, want, tc.ok)
			}
		}
	}
	if _, _, ok := FormField([]byte("--\n\n\n--"), "", "model"); ok {
		t.Error("found a field without a boundary")
	}
}

// FuzzFormField holds it against the standard library: what that finds first, this
// finds, too.
func FuzzFormField(f *testing.F) {
	f.Add("B", "file", "model", "m", []byte("\x00\r\n--B0"))
	f.Add("xyz", "model", "model", "Qwen/Qwen3", []byte("--xyz\r\n"))
	f.Fuzz(func(t *testing.T, boundary, first, second, value string, file []byte) {
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		if w.SetBoundary(boundary) != nil || second == "" || strings.ContainsAny(value, "\r\n") || strings.Contains(value, boundary) || bytes.Contains(file, []byte(boundary)) {
			t.Skip()
		}
		part, err := w.CreateFormFile(first, "a.wav")
		if err != nil {
			t.Skip()
		}
		part.Write(file)
		if w.WriteField(second, value) != nil || w.Close() != nil {
			t.Skip()
		}
		want, found := "", false
		r := multipart.NewReader(bytes.NewReader(b.Bytes()), boundary)
		for {
			p, err := r.NextRawPart()
			if err != nil {
				break
			}
			if p.FormName() == second && p.FileName() == "" {
				raw, err := io.ReadAll(p)
				want, found = string(raw), err == nil
				break
			}
		}
		if !found || want != value {
			t.Skip() // a name that does not survive
		}
		start, end, ok := FormField(b.Bytes(), boundary, second)
		if got := string(b.Bytes()[start:end]); !ok || got != want {
			t.Errorf("got %q, %v; want %q", got, ok, want)
		}
	})
}
