package doctor

import (
	"net/http"
	"slices"
	"sync"
)

// counting counts the requests for some paths.
func counting(h http.Handler, n *int, paths ...string) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(paths, r.URL.Path) {
			mu.Lock()
			*n++
			mu.Unlock()
		}
		h.ServeHTTP(w, r)
	})
}
