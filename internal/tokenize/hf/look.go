package hf

import (
	"encoding/json"
	"fmt"
	"slices"
)

// local looks at a normalizer member: plain says that text can be normalized in
// parts, cut before a space or after a line feed; marksSpaces that it replaces
// spaces by word marks and does nothing else.
func local(raw []byte) (plain, marksSpaces bool) {
	var n struct {
		Type        string                  `json:"type"`
		Pattern     struct{ String string } `json:"pattern"`
		Content     string                  `json:"content"`
		Normalizers []json.RawMessage       `json:"normalizers"`
	}
	if len(raw) == 0 || string(raw) == "null" {
		return true, false
	}
	if json.Unmarshal(raw, &n) != nil {
		return false, false
	}
	if n.Type == "Sequence" && len(n.Normalizers) == 1 {
		return local(n.Normalizers[0])
	}
	marksSpaces = n.Type == "Replace" && n.Pattern.String == " " && n.Content == "▁"
	return marksSpaces || n.Type == "NFC" || n.Type == "Sequence" && len(n.Normalizers) == 0, marksSpaces
}

// keepsWhole reports whether a pre_tokenizer member leaves text without spaces whole.
func keepsWhole(raw []byte) bool {
	var p struct {
		Type    string                  `json:"type"`
		Pattern struct{ String string } `json:"pattern"`
	}
	return len(raw) == 0 || string(raw) == "null" ||
		json.Unmarshal(raw, &p) == nil && p.Type == "Split" && p.Pattern.String == " "
}

// checkFirst refuses a Metaspace that prepends to the first piece only, with a
// normalizer that may move the beginning of the text: the library then asks where the
// piece was before.
func checkFirst(f *file) error {
	if !prependsFirst(f.preTokenizer) {
		return nil
	}
	if name := movesStart(f.normalizer); name != "" {
		return fmt.Errorf("pre_tokenizer: prepend_scheme \"first\" with the normalizer %s is not supported", name)
	}
	return nil
}

// prependsFirst reports whether a pre_tokenizer member has a Metaspace for the first
// piece only.
func prependsFirst(raw []byte) bool {
	var p struct {
		Scheme string            `json:"prepend_scheme"`
		Parts  []json.RawMessage `json:"pretokenizers"`
	}
	if len(raw) == 0 || json.Unmarshal(raw, &p) != nil {
		return false // others say what is wrong with it
	}
	return p.Scheme == "first" || slices.ContainsFunc(p.Parts, func(raw json.RawMessage) bool { return prependsFirst(raw) })
}

// movesStart returns the type in a normalizer member that may move the beginning of a
// text, if there is one.
func movesStart(raw []byte) string {
	var n struct {
		Type  string            `json:"type"`
		Parts []json.RawMessage `json:"normalizers"`
	}
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &n) != nil {
		return ""
	}
	switch n.Type {
	case "NFC", "NFD", "NFKC", "NFKD", "Lowercase":
		return ""
	case "Sequence":
		for _, part := range n.Parts {
			if name := movesStart(part); name != "" {
				return name
			}
		}
		return ""
	default:
		return n.Type
	}
}
