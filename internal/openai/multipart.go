package openai

import (
	"bytes"
	"mime"
	"strings"
)

// maxPartHeader bounds the header of a part of a form.
const maxPartHeader = 16 << 10

// FormField finds a field of a multipart/form-data body and returns where its value is;
// of several with that name the first counts, and files do not. Nothing else is looked
// into: a file costs a search for its end. ok is false when there is no such field, or
// the body is none that is delimited by boundary.
func FormField(body []byte, boundary, name string) (start, end int, ok bool) {
	if boundary == "" || name == "" {
		return 0, 0, false
	}
	delimiter := []byte("--" + boundary)
	at, ok := nextDelimiter(body, 0, delimiter)
	for ok {
		header := partHeader(body, at+len(delimiter))
		if header < 0 {
			return 0, 0, false
		}
		start = header
		for start < len(body) { // over the header, line by line
			line, next := headerLine(body, start)
			if next < 0 || next-header > maxPartHeader {
				return 0, 0, false
			}
			start = next
			if len(line) == 0 {
				break
			}
		}
		at, ok = nextDelimiter(body, start, delimiter)
		if !ok {
			return 0, 0, false
		}
		if fieldName(body[header:start]) == name {
			end = at
			if end > start && body[end-1] == '\n' {
				end--
			}
			if end > start && body[end-1] == '\r' {
				end--
			}
			return start, end, true
		}
	}
	return 0, 0, false
}

// nextDelimiter returns where the next delimiter is, at the beginning of a line.
func nextDelimiter(body []byte, from int, delimiter []byte) (int, bool) {
	for from <= len(body) {
		n := bytes.Index(body[from:], delimiter)
		if n < 0 {
			return 0, false
		}
		at := from + n
		after := body[at+len(delimiter):]
		if (at == 0 || body[at-1] == '\n') && (len(after) == 0 || strings.IndexByte(" \t\r\n-", after[0]) >= 0) {
			return at, true
		}
		from = at + 1
	}
	return 0, false
}

// partHeader returns where the header of a part begins whose delimiter ends at i; -1
// if that was the last delimiter.
func partHeader(body []byte, i int) int {
	for i < len(body) && (body[i] == ' ' || body[i] == '\t') {
		i++
	}
	if i < len(body) && body[i] == '\r' {
		i++
	}
	if i < len(body) && body[i] == '\n' {
		return i + 1
	}
	return -1
}

// headerLine returns the line at i without its end, and where the next begins; -1 if
// it has no end.
func headerLine(body []byte, i int) (line []byte, next int) {
	n := bytes.IndexByte(body[i:], '\n')
	if n < 0 {
		return nil, -1
	}
	line = body[i : i+n]
	if len(line) > 0 && line[len(line)-1] == '\r' {
		line = line[:len(line)-1]
	}
	return line, i + n + 1
}

// fieldName returns the name of the field that a part is, empty if it is a file or
// does not say.
func fieldName(header []byte) string {
	for line := range bytes.Lines(header) {
		key, value, ok := bytes.Cut(line, []byte{':'})
		if !ok || !strings.EqualFold(string(bytes.TrimSpace(key)), "Content-Disposition") {
			continue
		}
		disposition, params, err := mime.ParseMediaType(string(bytes.TrimSpace(value)))
		if _, file := params["filename"]; err != nil || file || disposition != "form-data" {
			return ""
		}
		return params["name"]
	}
	return ""
}
