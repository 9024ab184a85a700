#compdef fanpcap
# Completes fanpcap's command line in zsh: `fanpcap complete` knows what a word may be.
_fanpcap() {
    local -a found
    found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${found[1]}" == ":files" ]]; then
        _files
    else
        compadd -a found
    fi
}
_fanpcap "$@"
