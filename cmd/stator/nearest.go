package main

import (
	"reflect"
	"strings"
)

// nearest returns the path of the setting that was probably meant by an unknown
// key in the section of type t: the only one of that name anywhere, else the most
// similar one of the section; empty if there is none.
func nearest(t reflect.Type, path, name string) string {
	if len(name) > 64 {
		return "" // no slip of the pen
	}
	name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	if elsewhere := pathsTo(configType, "", name); len(elsewhere) == 1 {
		return elsewhere[0]
	}
	best, distance := "", max(2, len(name)/3)+1
	for f := range fields(t) {
		tag := f.Tag.Get("koanf")
		if d := editDistance(name, tag); d < distance && d < len(tag) {
			best, distance = tag, d
		}
	}
	if best == "" {
		return ""
	}
	return join(path, best)
}

// pathsTo returns the paths of all settings called name.
func pathsTo(t reflect.Type, path, name string) []string {
	var out []string
	for f := range fields(t) {
		tag := f.Tag.Get("koanf")
		at := join(path, tag)
		if tag == name {
			out = append(out, at)
		}
		switch f.Type.Kind() {
		case reflect.Struct:
			out = append(out, pathsTo(f.Type, at, name)...)
		case reflect.Slice:
			if f.Type.Elem().Kind() == reflect.Struct {
				out = append(out, pathsTo(f.Type.Elem(), at+"[]", name)...)
			}
		}
	}
	return out
}

// editDistance is the number of insertions, deletions, replacements and swaps of
// neighbours that make b of a.
func editDistance(a, b string) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range b {
		d[0][j+1] = j + 1
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			replace := d[i-1][j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			d[i][j] = min(replace, d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
