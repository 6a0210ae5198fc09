// The kinds of facts (chapters/*/pictures/*.json) that there is a figure for. roofline and traffic are charts.
export const figureKinds = ['banks', 'fragments', 'roofline', 'softmax', 'swizzle', 'tiles', 'timeline', 'traffic'];
