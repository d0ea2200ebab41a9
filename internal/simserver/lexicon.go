package simserver

import "strings"

// The words of the generated text by class. A few have letters outside ASCII, so
// that characters spread over several tokens occur.
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

// sentences are the patterns of the generated text. A word after $ is a class.
var sentences = parseSentences(
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
)

// slot is one word of a sentence: any of words, and the mark after it.
type slot struct {
	words []string
	mark  byte // 0 for none
}

// longestUnit is the size of the longest word with its mark.
const longestUnit = 16

func parseSentences(patterns ...string) [][]slot {
	out := make([][]slot, 0, len(patterns))
	for _, p := range patterns {
		var s []slot
		for _, w := range strings.Fields(p) {
			var sl slot
			if n := len(w) - 1; strings.IndexByte(".,?", w[n]) >= 0 {
				sl.mark = w[n]
				w = w[:n]
			}
			if class, ok := strings.CutPrefix(w, "$"); ok {
				sl.words = lexicon[class]
			} else {
				sl.words = []string{w}
			}
			s = append(s, sl)
		}
		out = append(out, s)
	}
	return out
}
