# Completion of Brine's programs for bash. The programs print the words: see '--complete'
# in doc/operating.md. They print no word that bash would have to quote.
_salt_complete() {
	local line=${COMP_LINE:0:COMP_POINT} breaks=${COMP_WORDBREAKS//[^:=@]/} word start=
	local -a typed
	line=${line##*[;|&(]}
	read -ra typed <<<"$line"
	[[ $line != *[[:space:]] ]] || typed+=("")
	while ((${#typed[@]} > 1)) && [[ ${typed[0]} != "$1" ]]; do typed=("${typed[@]:1}"); done
	word=${typed[${#typed[@]} - 1]}
	mapfile -t COMPREPLY < <("$1" --complete "${typed[@]:1}" 2>/dev/null)
	# bash does not replace the part before a character at which it breaks words.
	[[ -z $breaks || $word != *["$breaks"]* ]] || start=${word%"${word##*["$breaks"]}"}
	COMPREPLY=("${COMPREPLY[@]#"$start"}")
}
complete -o default -F _salt_complete salt salt-api salt-call salt-cp salt-event salt-key salt-master salt-minion salt-run
