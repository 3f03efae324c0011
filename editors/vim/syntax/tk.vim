" Kernels of tilec; written by editors/write.py
if exists('b:current_syntax')
  finish
endif

syntax keyword tkKeyword and as assert elif else fn for from if import in inout join kernel not or out pass register require return schedule shared strict tune while
syntax keyword tkConstant LN2 LOG2E None PI false inf nan true
syntax keyword tkType bf16 bool dtype e4m3 e5m2 f16 f32 f64 float int s16 s32 s4 s64 s8 tf32 u16 u32 u4 u64 u8
syntax keyword tkFunction abs all anchor any argmax argmin atomic_add atomic_and atomic_compare_exchange atomic_exchange atomic_max atomic_min atomic_or atomic_xor bitcast cast cummax cummin cumprod cumsum dot exp exp2 exp2sub full len log log2 max min parallel print prod ptx range reduce rowmax rowmin rowsum rsqrt scan sqrt static_assert sum tanh temp tiles where zeros
syntax match tkAttribute /\.\s*\h\w*/
syntax match tkDefined /\(\<\(kernel\|fn\)\s\+\)\@<=\h\w*/
syntax match tkNumber /\<\(0[xX][0-9A-Fa-f_]\+\|0[bB][01_]\+\|\d[0-9_]*\)\>/
syntax match tkFloat /\(\<\d[0-9_]*\)\?\.\d[0-9_]*\([eE][+-]\?\d\+\)\?/
syntax match tkFloat /\<\d[0-9_]*\(\.\h\@!\([eE][+-]\?\d\+\)\?\|[eE][+-]\?\d\+\)/
syntax match tkOperator /[-+*\/%@&|^~<>=!]\+/
syntax region tkString start=/"/ end=/"/ oneline
syntax match tkComment /#.*$/

highlight default link tkKeyword Keyword
highlight default link tkConstant Constant
highlight default link tkType Type
highlight default link tkFunction Function
highlight default link tkDefined Identifier
highlight default link tkNumber Number
highlight default link tkFloat Float
highlight default link tkOperator Operator
highlight default link tkString String
highlight default link tkComment Comment

let b:current_syntax = 'tk'
