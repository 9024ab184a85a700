# Completes fanpcap's command line in bash: `fanpcap complete` knows what a word may be.
_fanpcap() {
    local line word="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = ":files" ]; then
            compopt -o default 2>/dev/null
            COMPREPLY=()
            return
        fi
        [ -n "$line" ] && COMPREPLY+=("$line")
    done < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD-1}" "$word" 2>/dev/null)
}
complete -F _fanpcap fanpcap
