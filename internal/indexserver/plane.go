package indexserver

import (
	"net/http"
	"strconv"

	"github.com/stator-ai/stator/internal/kv"
	"github.com/stator-ai/stator/internal/openai"
)

// planeQuery answers the questions that Dynamo's components ask each other, in the
// form they do: {"FindMatchesHashed":…}, {"FindMatchesTokens":…} or "DumpTree".
// Counts are in blocks. The model comes with the URL, and may be left out where
// there is only one.
func (s *Server) planeQuery(w http.ResponseWriter, r *http.Request) error {
	body, held, err := s.readBody(w, r, jsonForm)
	defer held.release()
	if err != nil {
		return err
	}
	p, err := s.addressed(r)
	if err != nil {
		return err
	}
	if word, ok := openai.Value(trimSpace(body)).Text(); ok {
		if word != "DumpTree" {
			return fail(http.StatusBadRequest, `expected "DumpTree" or an object, got %s`, shortQuote(word))
		}
		held.release()
		return s.planeDump(w, p)
	}
	f, err := parseForm(body, held)
	if err != nil {
		return err
	}
	var prompt []kv.Block
	switch hashed, byToken := f.o.Get("FindMatchesHashed"), f.o.Get("FindMatchesTokens"); {
	case hashed != nil && byToken == nil:
		if f, err = inner(hashed, "FindMatchesHashed", held); err == nil {
			prompt = f.hashes("block_hashes")
		}
	case byToken != nil && hashed == nil:
		if f, err = inner(byToken, "FindMatchesTokens", held); err == nil {
			prompt = f.prompt("tokens", p.blockSize)
		}
	default:
		err = fail(http.StatusBadRequest, `expected one of FindMatchesHashed, FindMatchesTokens, "DumpTree"`)
	}
	if err != nil {
		return err
	}
	if f.err != nil {
		return f.err
	}
	found, frequencies := p.match(prompt)
	out := append([]byte(nil), `{"Matches":{"scores":[`...)
	comma := false
	for i := range found {
		depth := found[i].Depth[kv.Device]
		if depth == 0 {
			continue
		}
		if comma {
			out = append(out, ',')
		}
		comma = true
		out = append(out, `[{"worker_id":`...)
		out = strconv.AppendUint(out, uint64(found[i].Source.Worker), 10)
		out = append(out, `,"dp_rank":`...)
		out = strconv.AppendUint(out, uint64(found[i].Source.Rank), 10)
		out = append(out, `},`...)
		out = strconv.AppendUint(out, uint64(depth), 10)
		out = append(out, ']')
	}
	out = append(out, `],"frequencies":`...)
	out = appendInts(out, frequencies)
	replyRaw(w, http.StatusOK, append(out, "}}\n"...))
	return nil
}

// inner reads the fields of a question.
func inner(v openai.Value, name string, held *held) (*form, error) {
	if v.Kind() != '{' {
		return nil, invalid(name, "expected an object, got %s", v.TypeName())
	}
	return parseForm(v, held)
}

// addressed returns the pool that the URL names.
func (s *Server) addressed(r *http.Request) (*pool, error) {
	q := r.URL.Query()
	key := poolKey{model: q.Get("model_name"), group: q.Get("routing_group")}
	if key == (poolKey{}) {
		all := s.all()
		if len(all) == 1 {
			return all[0], nil
		}
		return nil, invalid("model_name", "expected the name of a model in the URL, for there are %d", len(all))
	}
	if key.group == "" {
		key.group = defaultGroup
	}
	if err := key.check(); err != nil {
		return nil, err
	}
	return s.find(key)
}

// trimSpace is bytes.TrimSpace for the white space that JSON knows.
func trimSpace(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }
