package metrics

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the catalogue says of a family is what a server exposes.
func TestCatalogue(t *testing.T) {
	exposed, err := scenario().Registry().Gather()
	if err != nil {
		t.Fatalf("gather: %v", err)
	}
	var want []Family
	for _, f := range exposed {
		if foreign(f.GetName()) {
			continue
		}
		w := Family{Name: f.GetName(), Help: f.GetHelp(), Type: FamilyType(strings.ToLower(f.GetType().String()))}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(w.Labels, l.GetName()) {
					w.Labels = append(w.Labels, l.GetName())
				}
			}
		}
		slices.Sort(w.Labels)
		want = append(want, w)
	}
	got := Catalogue()
	for i := range got {
		if len(got[i].Labels) == 0 {
			got[i].Labels = nil
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("catalogue (-exposed +catalogue):\n%s", diff)
	}
}
