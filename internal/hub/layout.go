package hub

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// DefaultRevision is the branch that is meant when none is given.
const DefaultRevision = "main"

// repository is one model's directory in the cache that Hugging Face's libraries
// share:
//
//	blobs/ETAG                     contents, named by checksum
//	snapshots/COMMIT/FILE          links to blobs
//	refs/REVISION                  the commit that a branch or tag was at
type repository struct{ dir string }

// repositoryOf returns the directory of a repository, org/name or name.
func repositoryOf(cache, repo string) repository {
	return repository{dir: filepath.Join(cache, folder(repo))}
}

// folder is the name of a repository's directory.
func folder(repo string) string { return "models--" + strings.ReplaceAll(repo, "/", "--") }

func (r repository) exists() bool {
	info, err := os.Stat(filepath.Join(r.dir, "snapshots"))
	return err == nil && info.IsDir()
}

func (r repository) blob(etag string) string { return filepath.Join(r.dir, "blobs", etag) }

func (r repository) snapshot(commit string) string { return filepath.Join(r.dir, "snapshots", commit) }

func (r repository) file(commit, name string) string {
	return filepath.Join(r.snapshot(commit), filepath.FromSlash(name))
}

func (r repository) ref(revision string) string {
	return filepath.Join(r.dir, "refs", filepath.FromSlash(revision))
}

// lookup returns the commit of a revision whose snapshot is on disk. The error is
// an [fs.ErrNotExist] if there is none.
func (r repository) lookup(revision string) (string, error) {
	commit := revision
	if !isCommit(revision) {
		text, err := os.ReadFile(r.ref(revision))
		if err != nil {
			return "", err
		}
		commit = strings.TrimSpace(string(text))
		if !isCommit(commit) {
			return "", fmt.Errorf("%s holds %.80q: expected a commit", r.ref(revision), commit)
		}
	}
	if _, err := os.Stat(r.snapshot(commit)); err != nil {
		return "", err
	}
	return commit, nil
}

// only returns the commit of the snapshot when there is one alone.
func (r repository) only() (string, error) {
	entries, err := os.ReadDir(filepath.Join(r.dir, "snapshots"))
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	if len(names) != 1 {
		return "", fmt.Errorf("refs/%s names no snapshot and there are %d: give the path of one (%s)",
			DefaultRevision, len(names), filepath.Join(r.dir, "snapshots", "…"))
	}
	return names[0], nil
}

// setRef records that a revision is at a commit.
func (r repository) setRef(revision, commit string) error {
	if revision == commit {
		return nil
	}
	path := r.ref(revision)
	if text, err := os.ReadFile(path); err == nil && string(text) == commit {
		return nil // the cache may be read-only
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	return replace(path, func(f *os.File) error {
		_, err := f.WriteString(commit)
		return err
	})
}

// link makes a file of a snapshot stand for a blob: by a relative link, so that
// the cache can be moved, or by a copy where symlink says that there are no links.
func (r repository) link(commit, name, etag string, symlink func(target, path string) error) error {
	path := r.file(commit, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(path), r.blob(etag))
	if err != nil {
		return err
	}
	temp := unique(path, ".tmp")
	if err := symlink(target, temp); err != nil {
		return replace(path, func(f *os.File) error {
			src, err := os.Open(r.blob(etag))
			if err != nil {
				return err
			}
			defer src.Close()
			_, err = io.Copy(f, src)
			return err
		})
	}
	if err := os.Rename(temp, path); err != nil {
		os.Remove(temp)
		return err
	}
	return nil
}

// replace writes a file beside path and renames it to path, so that readers see
// all of it or what was there before.
func replace(path string, write func(*os.File) error) error {
	temp := unique(path, ".tmp")
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	err = errors.Join(write(f), f.Close())
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
	}
	return err
}

// unique returns a name that no other process uses, beginning with path.
func unique(path, ext string) string { return fmt.Sprintf("%s.%016x%s", path, rand.Uint64(), ext) }

// present reports whether a file is there, through links.
func present(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// isCommit reports whether s is a full commit id.
func isCommit(s string) bool { return (len(s) == 40 || len(s) == 64) && isHex(s) }

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// checkRepo returns an error unless repo is org/name or name, as the Hub allows
// them. Such a name is safe in paths and URLs.
func checkRepo(repo string) error {
	parts := strings.Split(repo, "/")
	bad := len(parts) > 2 || strings.Contains(repo, "..") || strings.Contains(repo, "--") || strings.HasSuffix(repo, ".git")
	for _, p := range parts {
		bad = bad || p == "" || len(p) > 96 || !edge(p[0]) || !edge(p[len(p)-1])
		for i := range len(p) {
			bad = bad || !edge(p[i]) && p[i] != '-' && p[i] != '.'
		}
	}
	if bad {
		return fmt.Errorf("repository %.120q: expected org/name of letters, digits, '-', '_' and '.'", repo)
	}
	return nil
}

// edge reports whether a part of a repository's name may begin and end with c.
func edge(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
}

// checkRevision returns an error unless a revision can be the name of a branch, a
// tag or a commit. Such a name is safe in paths.
func checkRevision(revision string) error {
	bad := len(revision) > 255 || !fs.ValidPath(revision) || revision == "."
	for _, r := range revision {
		bad = bad || r <= ' ' || r == 0x7f || strings.ContainsRune(`\:*?"<>|~^`, r)
	}
	for part := range strings.SplitSeq(revision, "/") {
		bad = bad || strings.HasPrefix(part, ".")
	}
	if bad {
		return fmt.Errorf("revision %.300q: expected a branch, a tag or a commit", revision)
	}
	return nil
}
