package simserver

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// The words of the generated text by class. A few have letters outside ASCII, so
// that characters spread over several tokens occur where tokens are bytes.
var lexicon = map[string][]string{
	"adj": strings.Fields(`
		amber ancient bright broad calm careful cheerful clear clever coastal cool curious
		deep distant early eager familiar faint fearless fine gentle golden graceful green
		hidden hollow honest humble idle kind late level light little lively lonely long
		mellow modest narrow naïve neat new northern odd old open pale patient plain polite
		proud quick quiet rare restless round rural shallow silver simple slender slow small
		soft solid steady still stormy sturdy tall tidy tranquil vast warm weathered wide wild`),
	"noun": strings.Fields(`
		baker bell boat bridge brook café candle captain carpenter castle cellar chapel clock
		cottage courier doctor engine farmer ferry field forest fountain gallery garden gate
		harbour hill island kettle kitchen lantern library lighthouse machine map market
		meadow miller mirror morning mountain museum orchard painter path piano pilot planet
		poet printer railway river road sailor school shepherd signal singer station stone
		storm street tailor teacher telescope theatre tower traveller valley village weaver
		window winter workshop`),
	"nouns": strings.Fields(`
		apples bells birds boats books bridges bricks candles children clocks clouds coins
		crowds drums engines farmers feathers flowers friends gardens guests horses ideas
		keys lamps leaves letters lights maps melodies neighbours notes paintings pilots
		poems questions ribbons rivers roads sails ships shoes songs sparrows stars stones
		stories strangers swallows trains travellers trees visitors waves windows`),
	"does": strings.Fields(`
		admires answers awaits borrows brightens carries circles collects crosses draws
		enjoys explains finds follows gathers greets guards guides hears keeps knows leads
		lifts maps measures mends notices paints passes praises reaches remembers repairs
		shelters sketches surrounds trusts visits watches welcomes`),
	"do": strings.Fields(`
		admire answer borrow carry cherish circle collect cross draw enjoy explain follow
		gather greet guard hear keep know lift measure mend notice paint pass praise reach
		remember repair sketch study trust visit watch welcome`),
	"rests": strings.Fields(`
		arrives begins breathes brightens continues drifts fades glows grows hums listens
		pauses rests returns settles shines sings sleeps smiles turns waits wakes wanders`),
	"adv": strings.Fields(`
		always barely briefly calmly carefully daily eagerly easily gently gladly kindly
		later lightly often patiently politely quickly quietly rarely seldom silently slowly
		softly sometimes soon steadily twice warmly`),
	"prep": strings.Fields(`
		above across against along around before behind below beneath beside beyond by inside
		near outside over past through toward under`),
	"opener": strings.Fields(`
		afterwards elsewhere eventually hence indeed instead likewise meanwhile nevertheless
		now otherwise somewhere still surely then therefore today tomorrow yesterday`),
}

// patterns are the sentences of the generated text. A word after $ is a class.
var patterns = []string{
	"the $adj $noun $does the $noun $prep the $noun.",
	"$opener, the $noun $rests $adv.",
	"every $noun $does its $adj $noun.",
	"most $nouns $adv $do the $adj $noun, and the $noun $rests.",
	"$prep the $noun, $adj $nouns $do the $noun $adv.",
	"when the $noun $rests, the $nouns $do the $adj $noun.",
	"the $noun $does $nouns and $nouns $prep the $adj $noun.",
	"no $adj $noun $adv $does the $noun.",
	"$adj $nouns $do the $noun because the $noun $rests $adv.",
	"who $does the $noun $prep the $noun?",
	"our $noun $rests $prep the $adj $noun.",
	"$opener, some $nouns $do what the $noun $does.",
	"the $nouns near the $noun $do the $adj $noun, but the $noun $does the $nouns.",
	"it $rests $adv, $prep the $noun and the $nouns.",
	"if the $noun $rests, $adj $nouns $do the $noun.",
	"the $noun, $adj and $adj, $does the $nouns.",
}

// sentence is a pattern in the tokens of a vocabulary.
type sentence struct {
	words [][]unit // those that each word is one of; the first is a capital
	first []unit   // the first word where no space is before it
}

// unit is a word with the space before it and the mark after it.
type unit struct {
	text string
	ids  []uint32
}

// learn makes the sentences of the vocabulary, and finds tokens to name as
// alternatives in them.
func (v *vocabulary) learn() {
	l := learner{v: v, known: make(map[string][]unit), seen: make(map[uint32]bool)}
	for _, p := range patterns {
		fields := strings.Fields(p)
		s := sentence{words: make([][]unit, len(fields))}
		for i, f := range fields {
			if i == 0 {
				s.first = l.units("", f, true /* capital */)
			}
			s.words[i] = l.units(" ", f, i == 0)
		}
		v.sentences = append(v.sentences, s)
	}
	if len(v.others)%otherStep == 0 {
		v.others = v.others[1:]
	}
}

// learner makes units.
type learner struct {
	v     *vocabulary
	known map[string][]unit
	seen  map[uint32]bool // tokens
}

// units returns what a field of a pattern can be, with something before it.
func (l *learner) units(before, field string, capital bool) []unit {
	key := fmt.Sprint(before, field, capital)
	if units, ok := l.known[key]; ok {
		return units
	}
	n := len(strings.TrimRight(field, ".,?"))
	word, mark := field[:n], field[n:]
	words := []string{word}
	if class, ok := strings.CutPrefix(word, "$"); ok {
		words = lexicon[class]
	}
	units := make([]unit, len(words))
	for i, w := range words {
		if capital {
			w = strings.ToUpper(w[:1]) + w[1:]
		}
		units[i] = l.unit(before + w + mark)
	}
	l.known[key] = units
	return units
}

func (l *learner) unit(text string) unit {
	ids, err := l.v.tokens.Encode(nil, []byte(text), false /* special */)
	if err != nil {
		panic(fmt.Sprintf("simserver: %q: %v", text, err)) // it is ours
	}
	for _, id := range ids {
		if !l.seen[id] && utf8.Valid(l.v.text(id)) {
			l.seen[id] = true
			l.v.others = append(l.v.others, id)
		}
	}
	return unit{text: text, ids: slices.Clip(ids)}
}
