package grain

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/brinebus/brine/internal/posix"
)

// names maps the beginning of a distribution's name (ten letters, in lower case, without blanks) to
// Salt's short name, the grain os. Other distributions keep their name.
var names = map[string]string{
	"alibabaclo": "Alinux",
	"almalinux":  "AlmaLinux",
	"alt":        "ALT",
	"amazonami":  "Amazon",
	"arch":       "Arch",
	"archarm":    "Arch ARM",
	"cloudlinux": "CloudLinux",
	"cloudserve": "CloudLinux",
	"debian":     "Debian",
	"enterprise": "OEL",
	"linuxmint":  "Mint",
	"manjaro":    "Manjaro",
	"manjarolin": "Manjaro",
	"mendel":     "Mendel",
	"neon":       "KDE neon",
	"oracleserv": "OEL",
	"pop!_os":    "Pop",
	"poky":       "Poky",
	"raspbian":   "Raspbian",
	"redhatente": "RedHat",
	"rocky":      "Rocky",
	"scientific": "ScientificLinux",
	"sles":       "SUSE",
	"slesexpand": "RES",
	"synology":   "Synology",
	"univention": "Univention",
	"void":       "Void",
}

// families has the grain os_family for distributions whose ID_LIKE is missing or names another one.
var families = map[string]string{
	"ALT":              "RedHat",
	"Alinux":           "RedHat",
	"AlmaLinux":        "RedHat",
	"Amazon":           "RedHat",
	"Arch ARM":         "Arch",
	"CentOS":           "RedHat",
	"CentOS Stream":    "RedHat",
	"CloudLinux":       "RedHat",
	"Devuan":           "Debian",
	"Fedora":           "RedHat",
	"Funtoo":           "Gentoo",
	"Manjaro":          "Arch",
	"Mint":             "Debian",
	"OEL":              "RedHat",
	"Poky":             "Poky",
	"Raspbian":         "Debian",
	"RedHat":           "RedHat",
	"Rocky":            "RedHat",
	"SUSE":             "Suse",
	"ScientificLinux":  "RedHat",
	"TurnKey":          "Debian",
	"Ubuntu":           "Debian",
	"VMware Photon OS": "RedHat",
	"openEuler":        "RedHat",
}

// likes maps a word of ID_LIKE to a family.
var likes = map[string]string{
	"arch": "Arch", "debian": "Debian", "fedora": "RedHat", "gentoo": "Gentoo", "rhel": "RedHat", "suse": "Suse", "ubuntu": "Debian",
}

// release is what the files of a distribution say about it.
type release struct {
	fields map[string]string // of os-release
	lsb    map[string]string // of lsb-release, by the part of the key after DISTRIB_
	legacy []string          // name, version, code name from the oldest kind of file
}

// os collects the grains of the distribution: os, os_family, osfullname, osrelease, osrelease_info,
// osmajorrelease, oscodename, osfinger, osarch and lsb_distrib_*. They are those of Salt's minion
// without the Python module lsb_release, which its own packages do not include.
func (m *machine) os() (map[string]any, error) {
	r := m.release()
	name, full := r.names()
	version, codename := r.version(name), r.codename(name)
	family := r.family(name)
	g := map[string]any{
		"os":         name,
		"os_family":  family,
		"osfullname": full,
		"oscodename": codename,
		"osarch":     arch(family, posix.Uname().Machine),
	}
	r.lsbGrains(g)
	if version != "" {
		versionGrains(g, name, full, version)
	}
	return g, nil
}

// release reads the files of the distribution.
func (m *machine) release() *release {
	text := m.read("/etc/os-release")
	if text == "" {
		text = m.read("/usr/lib/os-release")
	}
	r := &release{fields: assignments(text), lsb: map[string]string{}}
	for key, v := range assignments(m.read("/etc/lsb-release")) {
		if short, ok := strings.CutPrefix(key, "DISTRIB_"); ok {
			r.lsb[strings.ToLower(short)] = v
		}
	}
	for _, file := range []string{"/etc/centos-release", "/etc/redhat-release", "/etc/system-release"} {
		if r.legacy = legacyLine(m.line(file)); r.legacy != nil {
			break
		}
	}
	return r
}

// legacyLine parses "CentOS Linux release 7.9.2009 (Core)".
func legacyLine(s string) []string {
	return regexp.MustCompile(`^(.+?) (?:Linux )?release ([0-9][0-9.]*)[^(]*(?:\((.*)\))?`).FindStringSubmatch(s)
}

// assignments parses lines KEY=value; the value is quoted as in a shell, or not at all. Other lines
// are skipped.
func assignments(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		key, v, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && key != "" && key[0] != '#' {
			out[key] = unquote(v)
		}
	}
	return out
}

// unquote removes shell quotes, and the backslashes within them.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' && s[0] != '\'' || s[len(s)-1] != s[0] {
		return s
	}
	quote, s := s[0], s[1:len(s)-1]
	if quote == '\'' {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("\"\\$`", s[i+1]) >= 0 {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// shortName returns Salt's short name for a distribution with that full name.
func shortName(full string) string {
	linux := regexp.MustCompile(`(?i)\W(?:gnu/)?linux`)
	name := strings.TrimSpace(linux.ReplaceAllString(full, ""))
	key := strings.ToLower(strings.ReplaceAll(name, " ", ""))
	if short, ok := names[key[:min(len(key), 10)]]; ok {
		return short
	}
	return name
}

// names returns the grains os and osfullname.
func (r *release) names() (short, full string) {
	full = strings.TrimSpace(r.fields["NAME"])
	switch {
	case full == "" && r.lsb["id"] != "":
		full = r.lsb["id"]
	case full == "" && r.legacy != nil:
		full = r.legacy[1]
	case full == "":
		return "Linux", "Linux"
	}
	short = shortName(full)
	switch {
	case r.fields["ID"] == "astra" && r.fields["VARIANT_ID"] == "orel":
		short = "AstraLinuxCE"
	case r.fields["ID"] == "astra" && r.fields["VARIANT_ID"] == "smolensk":
		short = "AstraLinuxSE"
	case r.suse():
		short = "SUSE"
		if full == "openSUSE Leap" {
			full = "Leap"
		} else if r.fields["VERSION"] == "Tumbleweed" {
			full = "Tumbleweed"
		}
	}
	return short, full
}

// suse reports whether the platform name is one of SUSE's.
func (r *release) suse() bool {
	vendor := r.platform(2)
	return vendor == "suse" || vendor == "opensuse"
}

// platform returns a part of CPE_NAME, cpe:/o:vendor:product:version.
func (r *release) platform(part int) string {
	parts := strings.Split(r.fields["CPE_NAME"], ":")
	if len(parts) < 5 || parts[0] != "cpe" || !strings.HasPrefix(parts[1], "/") {
		return ""
	}
	return strings.ToLower(parts[part])
}

// family returns the grain os_family: by Salt's table, otherwise by ID_LIKE, otherwise the
// distribution is its own family. (Salt 3006 has only the table.)
func (r *release) family(name string) string {
	if f, ok := families[name]; ok {
		return f
	}
	for like := range strings.FieldsSeq(r.fields["ID_LIKE"]) {
		if f, ok := likes[like]; ok {
			return f
		}
	}
	return name
}

// version returns the grain osrelease, "" if the distribution has none.
func (r *release) version(name string) string {
	switch {
	case r.legacy != nil && (name == "CentOS" || r.fields["VERSION_ID"] == ""):
		// os-release of CentOS has only the major number.
		return r.legacy[2]
	case r.platform(2) == "opensuse":
		return r.platform(4)
	case name == "Mendel":
		// It has no VERSION_ID: "Mendel GNU/Linux 5 (Eagle)".
		if words := strings.Fields(r.fields["PRETTY_NAME"]); len(words) >= 3 {
			return words[2]
		}
	}
	for _, v := range []string{r.lsb["release"], r.fields["VERSION_ID"], r.fields["BUILD_ID"]} {
		if v != "" {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// codename returns the grain oscodename. If a distribution has no code name, its full name and
// version are used instead, as in Salt.
func (r *release) codename(name string) string {
	given, has := r.fields["VERSION_CODENAME"]
	within := between(r.fields["VERSION"], "(", ")")
	switch {
	case r.lsb["codename"] != "":
		return r.lsb["codename"]
	case has && given != "":
		return given
	case name == "AstraLinuxSE" || name == "AstraLinuxCE":
		return r.fields["VARIANT_ID"]
	case within != "" && (name == "Rocky" || name == "AlmaLinux" || name == "RedHat"):
		return within
	case has:
		return ""
	case r.fields["PRETTY_NAME"] != "":
		return r.fields["PRETTY_NAME"]
	case r.legacy != nil:
		return r.legacy[3]
	}
	return ""
}

func between(s, left, right string) string {
	_, s, _ = strings.Cut(s, left)
	s, _, ok := strings.Cut(s, right)
	if !ok {
		return ""
	}
	return s
}

// lsbGrains adds lsb_distrib_*, from lsb-release or otherwise from os-release.
func (r *release) lsbGrains(g map[string]any) {
	lsb := r.lsb
	if lsb["id"] == "" {
		codename, ok := r.fields["VERSION_CODENAME"]
		if !ok {
			codename = r.fields["PRETTY_NAME"]
		}
		lsb = map[string]string{"id": strings.TrimSpace(r.fields["NAME"]), "release": r.fields["VERSION_ID"], "codename": codename}
	}
	for _, key := range []string{"id", "release", "codename", "description"} {
		if lsb[key] != "" {
			g["lsb_distrib_"+key] = lsb[key]
		}
	}
}

// versionGrains adds the grains derived from the version.
func versionGrains(g map[string]any, name, full, version string) {
	var info []any
	for part := range strings.SplitSeq(version, ".") {
		if n, err := strconv.ParseUint(part, 10, 63); err == nil {
			info = append(info, int64(n))
		} else {
			info = append(info, part)
		}
	}
	g["osrelease"], g["osrelease_info"] = version, info
	first, _, _ := strings.Cut(version, ".")
	if major, ok := info[0].(int64); ok {
		g["osmajorrelease"] = major
		first = strconv.FormatInt(major, 10)
	}
	switch name {
	case "Debian", "Raspbian":
		full = name
	case "Ubuntu", "Pop":
		first = version
	}
	g["osfinger"] = full + "-" + first
}

// arch returns the architecture as the packages of the family name it.
func arch(family, machine string) string {
	debian := map[string]string{
		"aarch64": "arm64", "armv6l": "armhf", "armv7l": "armhf", "i386": "i386", "i586": "i386", "i686": "i386",
		"loongarch64": "loong64", "mips64": "mips64el", "ppc64le": "ppc64el", "x86_64": "amd64",
	}
	if a, ok := debian[machine]; ok && family == "Debian" {
		return a
	}
	return machine
}
