package trace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// output is the file that a [Writer] appends to: put aside when it is too large,
// and begun anew. It belongs to one goroutine.
type output struct {
	path       string // as given
	maxBytes   int64
	maxFiles   int
	compressed bool
	open       func(path string) (file, error)
	rotated    func(error) // told when files cannot be put aside, and with nil when they can be again

	file file
	// name is where the file is, links followed. It is empty where a file cannot be
	// cut off or renamed: a device, a pipe, or another file that was handed over
	// open, which others may be writing to.
	name   string
	stuck  bool  // it could not be put aside when that was tried last
	failed int64 // its size then
}

// file is what an output needs of an *os.File.
type file interface {
	io.ReaderAt
	io.Writer
	io.Closer
	Stat() (fs.FileInfo, error)
	Truncate(size int64) error
}

// put appends data to the file, all of it or nothing, after looking whether it is
// time for another file. A file that cannot be put aside grows on.
func (o *output) put(data []byte) error {
	size, err := o.size()
	if err != nil {
		return err
	}
	if o.full(size, len(data)) {
		if size, err = o.rotate(size); err != nil {
			return err
		}
	}
	if _, err := o.file.Write(data); err != nil {
		// What was written of it would spoil what comes after. Where it cannot be
		// cut off, openFile will find it.
		if o.name != "" {
			_ = o.file.Truncate(size)
		}
		_ = o.close()
		return err
	}
	return nil
}

// full reports whether data goes to another file.
func (o *output) full(size int64, data int) bool {
	if o.maxBytes == 0 || o.name == "" || size == 0 || size+int64(data) <= o.maxBytes {
		return false
	}
	return !o.stuck || size < o.failed || size >= o.failed+o.maxBytes/10
}

// size returns the size of the file, which is open afterwards.
func (o *output) size() (int64, error) {
	if o.file != nil {
		ours, err := o.file.Stat()
		if err != nil {
			_ = o.close()
			return 0, err
		}
		theirs, err := os.Stat(o.path)
		if err == nil && os.SameFile(ours, theirs) {
			return ours.Size(), nil
		}
		// It was moved or removed.
		if err := o.close(); err != nil {
			return 0, err
		}
	}
	if err := o.openFile(); err != nil {
		return 0, err
	}
	info, err := o.file.Stat()
	if err != nil {
		_ = o.close()
		return 0, err
	}
	return info.Size(), nil
}

// openFile opens the file and makes sure that rows can follow what is in it.
func (o *output) openFile() error {
	whole, err := o.openAndMend()
	if err == nil && !whole {
		if err = o.close(); err == nil {
			if err = o.putAside(); err == nil {
				_, err = o.openAndMend()
			}
		}
	}
	if err != nil {
		_ = o.close()
	}
	return err
}

func (o *output) openAndMend() (whole bool, err error) {
	if o.file, err = o.open(o.path); err != nil {
		o.file = nil
		return false, err
	}
	info, err := o.file.Stat()
	if err != nil {
		return false, err
	}
	if o.name = ownName(o.path, info); o.name == "" {
		return true, nil
	}
	return o.mend(info.Size())
}

// mend cuts off the row at the end that a crash left unfinished. It returns false
// if there is something else at the end, which nothing may follow either.
func (o *output) mend(size int64) (whole bool, err error) {
	begin, end := rowStart, int64(0)
	if o.compressed {
		begin = frameStart
		end, err = lastFrame(o.file, size)
	} else {
		end, err = lastLine(o.file, size)
	}
	if err != nil || end == size {
		return true, err
	}
	if end < 0 {
		return false, nil
	}
	torn := make([]byte, min(int64(len(begin)), size-end))
	if _, err := o.file.ReadAt(torn, end); err != nil {
		return false, err
	}
	if !bytes.HasPrefix(begin, torn) {
		return false, nil
	}
	return true, o.file.Truncate(end)
}

// rotate puts the file aside and opens a new one, or the same if that fails. It
// returns the size of what is open then.
func (o *output) rotate(size int64) (int64, error) {
	if err := o.close(); err != nil {
		return 0, err
	}
	err := o.putAside()
	switch {
	case err != nil:
		o.failed = size
		if !o.stuck {
			o.rotated(err)
		}
	case o.stuck:
		o.rotated(nil)
	}
	o.stuck = err != nil
	return o.size()
}

func (o *output) putAside() error {
	if err := putAside(o.name, o.maxFiles); err != nil {
		return fmt.Errorf("put %s aside: %w", o.name, err)
	}
	return nil
}

func (o *output) close() error {
	if o.file == nil {
		return nil
	}
	f := o.file
	o.file = nil
	return f.Close()
}

// ownName returns the name by which an open file can be renamed: path, or where
// the link that it is leads to. It is empty for what is not a regular file, and
// for one that is not found by a name of its own.
func ownName(path string, open fs.FileInfo) string {
	if !open.Mode().IsRegular() {
		return ""
	}
	for range 40 { // links in a row, at most
		info, err := os.Lstat(path)
		if err != nil {
			return ""
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			if !os.SameFile(info, open) {
				return ""
			}
			return path
		}
		dir, _ := filepath.Split(path)
		dir, err = filepath.EvalSymlinks(cmp.Or(dir, "."))
		if err != nil || strings.HasPrefix(dir, "/proc/") { // the open files of a process look like links
			return ""
		}
		target, err := os.Readlink(path)
		if err != nil {
			return ""
		}
		if path = target; !filepath.IsAbs(target) {
			path = dir + string(filepath.Separator) + target // not cleaned: .. may follow a link
		}
	}
	return ""
}

const zstdSuffix = ".zst"

// asideName returns the name of the nth file that was put aside, 1 the newest.
func asideName(path string, n int) string {
	base, compressed := strings.CutSuffix(path, zstdSuffix)
	if compressed {
		return fmt.Sprintf("%s.%d%s", base, n, zstdSuffix)
	}
	return fmt.Sprintf("%s.%d", path, n)
}

// putAside makes path the newest of the files put aside, and removes those beyond
// keep; 0 keeps all. It touches nothing but regular files.
func putAside(path string, keep int) error {
	count := 0
	for {
		name := asideName(path, count+1)
		info, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: expected a regular file", name)
		}
		count++
	}
	for ; keep > 0 && count >= keep; count-- {
		if err := os.Remove(asideName(path, count)); err != nil {
			return err
		}
	}
	for n := count; n > 0; n-- {
		if err := os.Rename(asideName(path, n), asideName(path, n+1)); err != nil {
			return err
		}
	}
	return os.Rename(path, asideName(path, 1))
}

// lastLine returns where the last whole line of a file ends, -1 if what follows it
// is longer than a line can be.
func lastLine(r io.ReaderAt, size int64) (int64, error) {
	buf := make([]byte, 4<<10)
	end, found := size, false
	for end > 0 && !found && size-end <= MaxLine {
		begin := max(0, end-int64(len(buf)))
		part := buf[:end-begin]
		if _, err := r.ReadAt(part, begin); err != nil {
			return 0, err
		}
		end = begin
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			end, found = begin+int64(i)+1, true
		}
		if len(buf) < 1<<20 {
			buf = make([]byte, 2*len(buf))
		}
	}
	if size-end > MaxLine {
		return -1, nil
	}
	return end, nil
}

// frameStart is how the zstd frames begin that a [Writer] writes.
var frameStart = []byte{0x28, 0xb5, 0x2f, 0xfd}

// lastFrame returns where the last of the complete zstd frames ends with which a
// file begins. It reads headers only.
func lastFrame(r io.ReaderAt, size int64) (int64, error) {
	end := int64(0)
	for end < size {
		next, err := nextFrame(r, end, size)
		if err != nil || next < 0 {
			return end, err
		}
		end = next
	}
	return end, nil
}

// nextFrame returns where the frame that begins at a place ends, -1 if there is
// none that is complete.
func nextFrame(r io.ReaderAt, at, size int64) (int64, error) {
	var buf [zstd.HeaderMaxSize]byte
	n, err := r.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	var h zstd.Header
	if h.Decode(buf[:n]) != nil {
		return -1, nil
	}
	at += int64(h.HeaderSize)
	if h.Skippable {
		at += int64(h.SkippableSize)
	}
	for last := h.Skippable; !last; {
		var b [3]byte
		if at+int64(len(b)) > size {
			return -1, nil
		}
		if _, err := r.ReadAt(b[:], at); err != nil {
			return 0, err
		}
		const rle = 1
		block := int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16
		last = block&1 != 0
		length := block >> 3
		if block>>1&3 == rle {
			length = 1
		}
		at += int64(len(b)) + length
	}
	if h.HasCheckSum {
		at += 4
	}
	if at > size {
		return -1, nil
	}
	return at, nil
}
