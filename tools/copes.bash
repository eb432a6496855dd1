# bash completion for copes: the command itself says which words may follow.
_copes()
{
    local word words=() current=${COMP_WORDS[COMP_CWORD]}
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do # bash takes --flag=value for three words
        [[ $word == = ]] || words+=("$word")
    done
    [[ $current != = ]] || current=
    mapfile -t COMPREPLY < <(compgen -W "$("$1" complete "${words[@]}" 2>/dev/null)" -- "$current")
}
complete -o default -F _copes copes
