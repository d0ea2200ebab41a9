package hub

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

// redraw is how often a bar is drawn at most.
const redraw = 100 * time.Millisecond

// Bar shows downloads on a terminal, as one line that is drawn over and over.
// Elsewhere, in a log file say, it writes a line for each file that is complete.
// It is safe for concurrent use.
type Bar struct {
	w     io.Writer
	width int // of the terminal; 0 if there is none
	now   func() time.Time

	mu    sync.Mutex
	files map[string]*progress // those under way
	drawn time.Time
	dirty bool // whether the line has something on it
}

// progress is how one file comes along.
type progress struct {
	since             time.Time
	start, done, size int64
}

// NewBar returns a bar that writes to w. [Bar.Update] is the [Progress] of a
// client and [Bar.Wait] its Waiting; [Bar.Close] ends the line.
func NewBar(w io.Writer) *Bar {
	b := &Bar{w: w, now: time.Now, files: make(map[string]*progress)}
	if f, ok := w.(*os.File); ok {
		b.width = columns(f)
	}
	return b
}

// Update shows how much of a file has come. It is a [Progress].
func (b *Bar) Update(file string, done, total int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	p := b.files[file]
	if p == nil {
		p = &progress{since: now, start: done}
		b.files[file] = p
	}
	p.start = min(p.start, done) // a download that began anew
	p.done, p.size = done, total
	if done == total {
		delete(b.files, file)
		b.finish(file, p, now)
		return
	}
	if b.width > 0 && now.Sub(b.drawn) >= redraw {
		b.drawn = now
		b.draw(now)
	}
}

// Wait shows that a request failed and when it is made again. It is what a client's
// Waiting is for.
func (b *Bar) Wait(err error, pause time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := fmt.Sprintf("again in %s: %s", pause.Round(redraw), printable(err.Error()))
	if b.width == 0 {
		fmt.Fprintln(b.w, line)
		return
	}
	fmt.Fprintf(b.w, "\r%s\x1b[K", cut(line, b.width-1))
	b.dirty = true
}

// Close ends the line if a download did not come to its end. The bar can be used
// again.
func (b *Bar) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dirty {
		fmt.Fprintln(b.w)
	}
	b.dirty = false
	clear(b.files)
}

// finish writes the line of a file that is complete, which stays.
func (b *Bar) finish(file string, p *progress, now time.Time) {
	line := fmt.Sprintf("%s  %s in %s", printable(file), bytesText(p.done), now.Sub(p.since).Round(redraw))
	if rate := p.rate(now); rate > 0 {
		line += fmt.Sprintf("  %s/s", bytesText(rate))
	}
	if b.width > 0 {
		line = "\r" + cut(line, b.width-1) + "\x1b[K"
	}
	fmt.Fprintln(b.w, line)
	b.dirty = false
	if b.width > 0 && len(b.files) > 0 {
		b.draw(now)
	}
}

// draw shows the largest of the files under way.
func (b *Bar) draw(now time.Time) {
	var name string
	var p *progress
	for n, q := range b.files {
		if p == nil || q.size > p.size || q.size == p.size && n < name {
			name, p = n, q
		}
	}
	if p == nil {
		return
	}
	var line string
	if p.size > 0 {
		const cells = 24
		full := int(cells * p.done / p.size)
		line = fmt.Sprintf("%s  [%s%s] %3d%%  %s / %s", printable(name), strings.Repeat("=", full), strings.Repeat(" ", cells-full),
			100*p.done/p.size, bytesText(p.done), bytesText(p.size))
	} else {
		line = fmt.Sprintf("%s  %s", printable(name), bytesText(p.done))
	}
	if rate := p.rate(now); rate > 0 {
		line += fmt.Sprintf("  %s/s", bytesText(rate))
	}
	fmt.Fprintf(b.w, "\r%s\x1b[K", cut(line, b.width-1))
	b.dirty = true
}

// rate returns the bytes per second that have come in this download, or 0 when it
// is too early to tell.
func (p *progress) rate(now time.Time) int64 {
	took := now.Sub(p.since)
	if took < redraw {
		return 0
	}
	return int64(float64(p.done-p.start) / took.Seconds())
}

// printable keeps a name from the server out of the terminal's controls.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// cut shortens a line to a number of characters.
func cut(s string, n int) string {
	if n <= 0 {
		return ""
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// bytesText writes a number of bytes with three digits or so.
func bytesText(n int64) string {
	const units = "kMGT"
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1000, 0
	for v >= 999.95 && i < len(units)-1 {
		v, i = v/1000, i+1
	}
	return fmt.Sprintf("%.1f %cB", v, units[i])
}
