package simserver

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/stator-ai/stator/internal/kv/enginehash"
	"github.com/stator-ai/stator/internal/simengine"
)

// vectorTime is the time of all vectors.
const vectorTime = 1700000000.5

var (
	vectorTokens = []uint32{1, 2, 3, 4, 5, 6, 7, 1000}
	hashOne      = vllmDigest(0x1122334455667788)
	hashTwo      = vllmDigest(0xffeeddccbbaa9988)
)

// vllmDigest returns a digest that vLLM shows as a number.
func vllmDigest(shown uint64) (d enginehash.Digest) {
	binary.BigEndian.PutUint64(d[len(d)-8:], shown)
	return d
}

func sglangDigests(salt string) []enginehash.Digest {
	c := enginehash.NewSGLang(salt)
	return []enginehash.Digest{c.Page(vectorTokens[:4]), c.Page(vectorTokens[4:])}
}

// countingDigest has the bytes 0 to 31.
func countingDigest() (d enginehash.Digest) {
	for i := range d {
		d[i] = byte(i)
	}
	return d
}

func TestWireVectors(t *testing.T) {
	both := storedBlocks{
		hashes: []enginehash.Digest{hashOne, hashTwo}, tokens: vectorTokens, blockSize: 4, group: mainGroup,
	}
	second := both
	second.hashes, second.tokens = both.hashes[1:], vectorTokens[4:]
	second.parent, second.hasParent = hashOne, true
	pages, salted := both, both
	pages.hashes = sglangDigests("")
	salted.hashes, salted.salt = sglangDigests("tenant-a"), "tenant-a"

	stored := func(s storedBlocks) func(*wireBatch) { return func(w *wireBatch) { w.stored(&s) } }
	removed := func(ds ...enginehash.Digest) func(*wireBatch) {
		return func(w *wireBatch) {
			for _, d := range ds {
				w.removed(d, mainGroup)
			}
		}
	}
	for _, tc := range []struct {
		name   string
		kind   simengine.Kind
		format string
		rank   int
		events func(*wireBatch)
		want   string
	}{
		{"E1", simengine.VLLM, "vllm-0.9", 0, stored(both),
			"92cb41d954fc402000009196ab426c6f636b53746f72656492cf1122334455667788cfffeeddccbbaa9988c09801020304050607cd03e804c0"},
		{"E2", simengine.VLLM, "vllm-0.10.2", 0, stored(both),
			"93cb41d954fc402000009197ab426c6f636b53746f72656492cf1122334455667788cfffeeddccbbaa9988c09801020304050607cd03e804c0a347505500"},
		{"E3", simengine.VLLM, "vllm-0.22", 1, stored(second),
			"93cb41d954fc40200000919cab426c6f636b53746f72656491cfffeeddccbbaa9988cf112233445566778894050607cd03e804c0a3475055c091c000ae66756c6c5f617474656e74696f6ec001"},
		{"E4", simengine.VLLM, "vllm-0.24", 0, stored(both),
			"93cb41d954fc40200000918ba474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392cf1122334455667788cfffeeddccbbaa9988b1706172656e745f626c6f636b5f68617368c0a9746f6b656e5f6964739801020304050607cd03e8aa626c6f636b5f73697a6504a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f6b65797392c0c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c6c5f617474656e74696f6e00"},
		{"E5", simengine.VLLM, "map", 0, removed(hashTwo),
			"93cb41d954fc402000009184a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391cfffeeddccbbaa9988a66d656469756da3475055a967726f75705f6964780000"},
		{"E5a", simengine.VLLM, "vllm-0.20", 0, removed(hashTwo),
			"93cb41d954fc402000009194ac426c6f636b52656d6f76656491cfffeeddccbbaa9988a34750550000"},
		{"E6", simengine.VLLM, "", 0, (*wireBatch).cleared,
			"93cb41d954fc402000009181a474797065b0416c6c426c6f636b73436c656172656400"},
		{"E6a", simengine.VLLM, "array", 0, (*wireBatch).cleared,
			"93cb41d954fc402000009191b0416c6c426c6f636b73436c656172656400"},
		{"E7", simengine.VLLM, "bytes", 0, removed(countingDigest()),
			"93cb41d954fc402000009184a474797065ac426c6f636b52656d6f766564ac626c6f636b5f68617368657391c420000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1fa66d656469756da3475055a967726f75705f6964780000"},
		{"S1", simengine.SGLang, "sglang-0.5.9", 0, stored(pages),
			"93cb41d954fc402000009197ab426c6f636b53746f72656492d3cf97adeedb59e05bd3db1eb80749f2a7a3c09801020304050607cd03e804c0a347505500"},
		{"S1, newest", simengine.SGLang, "", 0, stored(pages),
			"93cb41d954fc402000009197ab426c6f636b53746f72656492d3cf97adeedb59e05bd3db1eb80749f2a7a3c09801020304050607cd03e804c0a347505500"},
		{"S3", simengine.SGLang, "", 0, removed(sglangDigests("")[1]),
			"93cb41d954fc402000009193ac426c6f636b52656d6f76656491d3db1eb80749f2a7a3a347505500"},
		{"S3, both pages together", simengine.SGLang, "", 0, removed(sglangDigests("")...),
			"93cb41d954fc402000009193ac426c6f636b52656d6f76656492d3cf97adeedb59e05bd3db1eb80749f2a7a3a347505500"},
		{"S4", simengine.SGLang, "sglang-0.5.18", 0, stored(salted),
			"93cb41d954fc402000009198ab426c6f636b53746f72656492cf339927f491605c4bcf488485f50714b4a1c09801020304050607cd03e804c0a347505581aa63616368655f73616c74a874656e616e742d6100"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := findLayout(tc.kind, tc.format)
			if err != nil {
				t.Fatal(err)
			}
			var w wireBatch
			w.reset(l)
			tc.events(&w)
			if got := hex.EncodeToString(w.payload(vectorTime, tc.rank)); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// Every length of array, by the fields that the release added last.
func TestWireGenerations(t *testing.T) {
	s := storedBlocks{
		hashes: []enginehash.Digest{hashOne}, tokens: []uint32{200, 65536}, blockSize: 2,
		adapter: 3, lora: "a", salt: "s", group: sideGroup,
	}
	head := "ab426c6f636b53746f72656491cf1122334455667788c092ccc8ce000100000203" // to the number of the adapter
	gpu, lora, keys, group := "a3475055", "a161", "9192a161a173", "01"
	kind, window := "ae736c6964696e675f77696e646f77", "cd0400"
	for _, tc := range []struct{ format, want string }{
		{"vllm-0.9", "96" + head},
		{"vllm-0.10.2", "97" + head + gpu},
		{"vllm-0.14", "98" + head + gpu + lora},
		{"vllm-0.17", "99" + head + gpu + lora + keys},
		{"vllm-0.20", "9a" + head + gpu + lora + keys + group},
		{"vllm-0.22", "9c" + head + gpu + lora + keys + group + kind + window},
	} {
		l, err := findLayout(simengine.VLLM, tc.format)
		if err != nil {
			t.Fatal(err)
		}
		var w wireBatch
		w.reset(l)
		w.stored(&s)
		if got := hex.EncodeToString(w.events); got != tc.want {
			t.Errorf("%s: got  %s\nwant %s", tc.format, got, tc.want)
		}
	}
}
