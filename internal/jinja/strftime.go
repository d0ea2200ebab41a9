package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats a time as Python's datetime without a time zone does on
// Linux, in the C locale: the directives of C, with the flags -, _, 0, ^ and #
// of the GNU library.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		start := i
		var flag byte
		upper, swap := false, false
		for i++; i < len(format) && strings.IndexByte("-_0^#", format[i]) >= 0; i++ {
			switch c := format[i]; c {
			case '^':
				upper = true
			case '#':
				swap = true
			default:
				flag = c
			}
		}
		width := 0
		for ; i < len(format) && isDigit(format[i]) && width < 100; i++ {
			width = width*10 + int(format[i]-'0')
		}
		if i == len(format) {
			b.WriteString(format[start:])
			break
		}
		n, digits, padding, text := directive(t, format[i])
		switch {
		case digits > 0:
			writeNumber(&b, n, max(digits, width), padding, flag)
		case text == "" && strings.IndexByte("zZ", format[i]) < 0:
			b.WriteString(format[start : i+1])
		default:
			if upper || swap && format[i] != 'p' {
				text = strings.ToUpper(text)
			} else if swap {
				text = strings.ToLower(text)
			}
			fill := " "
			if flag == '0' {
				fill = "0"
			}
			b.WriteString(strings.Repeat(fill, max(width-len(text), 0)) + text)
		}
	}
	return b.String()
}

func writeNumber(b *strings.Builder, n, digits int, padding, flag byte) {
	switch flag {
	case '-':
		digits = 0
	case '_':
		padding = ' '
	case '0':
		padding = '0'
	}
	s := strconv.Itoa(n)
	for range digits - len(s) {
		b.WriteByte(padding)
	}
	b.WriteString(s)
}

// directive returns what a letter stands for: a number with its digits and what
// it is filled up with, or a text.
func directive(t time.Time, c byte) (n, digits int, padding byte, text string) {
	hour12 := (t.Hour()+11)%12 + 1
	num := func(n, digits int) (int, int, byte, string) { return n, digits, '0', "" }
	blank := func(n, digits int) (int, int, byte, string) { return n, digits, ' ', "" }
	str := func(s string) (int, int, byte, string) { return 0, 0, 0, s }
	isoYear, isoWeek := t.ISOWeek()
	switch c {
	case 'a':
		return str(t.Weekday().String()[:3])
	case 'A':
		return str(t.Weekday().String())
	case 'b', 'h':
		return str(t.Month().String()[:3])
	case 'B':
		return str(t.Month().String())
	case 'c':
		return str(strftime(t, "%a %b %e %H:%M:%S %Y"))
	case 'C':
		return num(t.Year()/100, 2)
	case 'd':
		return num(t.Day(), 2)
	case 'D', 'x':
		return str(strftime(t, "%m/%d/%y"))
	case 'e':
		return blank(t.Day(), 2)
	case 'f':
		return str(fmt.Sprintf("%06d", t.Nanosecond()/1000))
	case 'F':
		return str(strftime(t, "%Y-%m-%d"))
	case 'g':
		return num(isoYear%100, 2)
	case 'G':
		return num(isoYear, 1)
	case 'H':
		return num(t.Hour(), 2)
	case 'I':
		return num(hour12, 2)
	case 'j':
		return num(t.YearDay(), 3)
	case 'k':
		return blank(t.Hour(), 2)
	case 'l':
		return blank(hour12, 2)
	case 'm':
		return num(int(t.Month()), 2)
	case 'M':
		return num(t.Minute(), 2)
	case 'n':
		return str("\n")
	case 'p':
		return str(map[bool]string{true: "AM", false: "PM"}[t.Hour() < 12])
	case 'P':
		return str(map[bool]string{true: "am", false: "pm"}[t.Hour() < 12])
	case 'r':
		return str(strftime(t, "%I:%M:%S %p"))
	case 'R':
		return str(strftime(t, "%H:%M"))
	case 's':
		return num(int(t.Unix()), 1)
	case 'S':
		return num(t.Second(), 2)
	case 't':
		return str("\t")
	case 'T', 'X':
		return str(strftime(t, "%H:%M:%S"))
	case 'u':
		return num((int(t.Weekday())+6)%7+1, 1)
	case 'U':
		return num((t.YearDay()+6-int(t.Weekday()))/7, 2)
	case 'V':
		return num(isoWeek, 2)
	case 'w':
		return num(int(t.Weekday()), 1)
	case 'W':
		return num((t.YearDay()+6-(int(t.Weekday())+6)%7)/7, 2)
	case 'y':
		return num(t.Year()%100, 2)
	case 'Y':
		return num(t.Year(), 1)
	case '%':
		return str("%")
	}
	return str("")
}
