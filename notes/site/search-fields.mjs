// How the index of the search is made, and so how it is read.
export const searchFields = {
  fields: ['title', 'page', 'text'],
  storeFields: ['page', 'title', 'text', 'url', 'lesson'],
  searchOptions: { boost: { title: 3, page: 2 }, prefix: true, fuzzy: 0.1, combineWith: 'AND' },
};
